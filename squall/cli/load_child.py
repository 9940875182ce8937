"""Imports a topology file in a process of its own, for `squall submit`: nothing of a bad file reaches the cluster.

Guarantees: a file that hangs, crashes the interpreter or ends it is refused in one line, like one that raises an error;
the processes of its group end with the import.

The process, `python -m squall.cli.load_child TARGET APP_DIR ARGS...`, reads the settings above and below the
code's from stdin, and writes its outcome to stdout; what the file itself prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click
import msgspec

from squall.cli.loader import load_topology
from squall.cli.output import reserve_stdout
from squall.cli.settings import Layers
from squall.engine.api.config import Config
from squall.engine.errors import UsageError
from squall.engine.foreign.text import TRACEBACK_CHARACTERS, message_of, traceback_of
from squall.scheduler.client.topology_code import TopologyCode, pack
from squall.scheduler.common import process
from squall.scheduler.common.messages import Wire
from squall.scheduler.common.role import interpreter

LIMIT_SECS = 60.0


class Refusal(Wire, frozen=True, tag=True):
    """The file is refused."""

    message: str
    traceback: str


class ChildAnswer(Wire, frozen=True, tag=True):
    """The topology to submit."""

    code: TopologyCode
    settings: dict[str, object]
    """Those that hold, the code's own included."""


def load_apart(
    target: str, arguments: Sequence[str], layers: Layers, app_dir: str | None = None,
    environment: Mapping[str, str] | None = None, limit_secs: float = LIMIT_SECS,
) -> tuple[TopologyCode, Config]:
    """Import `target` in a process of its own. UsageError (its note is the user's traceback) if that fails; click's
    Exit if the topology's function ended the process."""
    command = [*interpreter("squall.cli.load_child"), target, app_dir or "", *arguments]
    request = msgspec.msgpack.encode(layers.places)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})},
        start_new_session=True,
    ) as child:
        try:
            said, _ = child.communicate(request, limit_secs)
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"importing {target} took longer than {limit_secs:g} s; start what takes long in open()"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    status = child.returncode
    if not said:
        ended = process.describe_status(-status if status < 0 else status << 8)
        raise UsageError(f"importing {target} ended its process: {ended}; a topology file must run to its end")
    outcome = msgspec.msgpack.decode(said, type=ChildAnswer | Refusal | int)
    if isinstance(outcome, int):
        raise click.exceptions.Exit(outcome)
    if isinstance(outcome, Refusal):
        error = UsageError(outcome.message)
        error.add_note(outcome.traceback)
        raise error
    return outcome.code, Config(**outcome.settings)


def main(target: str, app_dir: str, *arguments: str) -> NoReturn:
    """The process."""
    process.die_with_parent()
    layers = Layers(msgspec.msgpack.decode(sys.stdin.buffer.read()))
    out = reserve_stdout()
    outcome: ChildAnswer | Refusal | int
    try:
        loaded = load_topology(target, list(arguments), app_dir or None)
        config = layers.config(loaded.topology.config)
        outcome = ChildAnswer(pack(loaded.topology, config, loaded.script, beside=loaded.root), config.to_dict())
        said = msgspec.msgpack.encode(outcome)
    except BaseException as error:  # users' code may raise anything, even while a component is pickled
        if isinstance(error, SystemExit):
            outcome = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            texts = message_of(error, TRACEBACK_CHARACTERS), traceback_of(error)
            outcome = Refusal(*(text.encode(errors="backslashreplace").decode() for text in texts))
        said = msgspec.msgpack.encode(outcome)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the file may have closed or replaced it
        sys.stdout.flush()
    out.buffer.write(said)
    out.flush()
    # Not by a normal exit: threads that the file started must not keep this process alive.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
