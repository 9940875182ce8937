"""The seed by which all processes of a cluster hash text, so that equal keys go to the same task.

Guarantees: a cluster's seed is drawn once, when its directory is made, and kept with its store. A file that was lost or
altered is refused, because another seed would divide the keys of kept state among other tasks.

Relies on: every process being executed with `environment(seed)`, or forked from such a process. CPython's `hash` of
text (PEP 456) depends on the seed and the build of the interpreter alone.

A user who sets PYTHONHASHSEED chooses the seed of the clusters made then.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import replace_file

VARIABLE = "PYTHONHASHSEED"
FILE_NAME = "text.seed"
_MOST = (1 << 32) - 1
"""The largest seed that Python takes."""


def draw() -> int:
    """A seed for clusters that are to hash text alike: that of this process, or a random one."""
    seed = of_process()
    # 0 would mean no seed at all.
    return 1 + int.from_bytes(os.urandom(4), "big") % _MOST if seed is None else seed


def make(path: Path, store: Path, seed: int | None = None) -> None:
    """Give a cluster its seed, by default a drawn one, unless it has one. UsageError if it had one: there is a store.
    The caller excludes others meanwhile."""
    if path.exists():
        return
    if store.exists():
        raise UsageError(
            f"{path} is lost: it says how text is divided among tasks, and the kept state beside it relies on that; "
            "put back a copy, or choose another directory"
        )
    text = str(draw() if seed is None else seed).encode()
    replace_file(path, b"%s %08x\n" % (text, zlib.crc32(text)), sync=True)


def read(path: Path) -> int:
    """A cluster's seed. ClusterError if its file is lost or damaged."""
    try:
        text, _, check = path.read_bytes().partition(b" ")
    except FileNotFoundError:
        raise ClusterError(f"{path} is lost: it says how text is divided among tasks; put back a copy") from None
    if not text.isdigit() or check != b"%08x\n" % zlib.crc32(text):
        raise ClusterError(f"{path} is damaged: it says how text is divided among tasks; put back a copy")
    return int(text)


def of_process(environment: Mapping[str, str] = os.environ) -> int | None:
    """The seed that this process was executed with; None if it hashes text as no other."""
    text = environment.get(VARIABLE, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) <= _MOST else None


def environment(seed: int) -> dict[str, str]:
    """What a process of this seed needs in its environment."""
    return {VARIABLE: str(seed)}
