"""Writes a systemd user unit for a standing cluster, and tells systemd when `squall up` is ready in one.

Guarantees: systemd reads the unit as meant, whatever characters directories have in their names.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
from pathlib import Path

from squall.engine.errors import UsageError
from squall.scheduler.forking.interpreter import interpreter

_END_MARGIN_SECS = 30
"""Time beside the drain: more than workers, supervisors and Nimbus need to end."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+-]+")
_UNIT = """\
# squall up --systemd > ~/.config/systemd/user/squall.service
# systemctl --user daemon-reload && systemctl --user enable --now squall
[Unit]
Description=Squall cluster of {nodes} x {slots} slots

[Service]
Type=notify
ExecStart={command}
# SIGTERM goes to the command alone, which drains the cluster and ends with 0.
KillMode=mixed
TimeoutStartSec=60
TimeoutStopSec={stop_secs}
Restart=on-failure
RestartSec=1
UMask=0077
LimitNOFILE=infinity

[Install]
WantedBy=default.target
"""


def unit(nodes: int, slots: int, directory: Path | None, drain_secs: float, *, faults: bool = True) -> str:
    """The text of the unit; `directory` None means the user's default. UsageError for a directory that a unit cannot
    name."""
    if not math.isfinite(drain_secs):
        raise UsageError(f"the wait is {drain_secs}; allowed: a number of seconds from 0 up")
    command = [*interpreter("squall"), "up", "--nodes", str(nodes), "--slots", str(slots), "--wait", f"{drain_secs:g}"]
    if not faults:
        command.append("--no-faults")
    if directory is not None:
        command += ["--dir", os.path.abspath(directory)]
    return _UNIT.format(
        nodes=nodes, slots=slots, command=" ".join(_quoted(word, index) for index, word in enumerate(command)),
        stop_secs=round(drain_secs) + _END_MARGIN_SECS,
    )


def tell_ready() -> None:
    """Tell systemd, in a unit of Type=notify, that the cluster is ready. Does nothing elsewhere."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    # An abstract address begins with @ in the environment, but with NUL in the kernel.
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, contextlib.suppress(OSError):
        # If the setter of the variable does not listen, it waits for nothing.
        notify.sendto(b"READY=1", name)


def _quoted(word: str, index: int) -> str:
    """Quote a word of ExecStart, which reads C's escapes, specifiers (%) and, after the first word, variables ($)."""
    if _PLAIN.fullmatch(word):
        return word
    if not word.isprintable():
        raise UsageError(f"the directory {word!r} has characters that no systemd unit can name: choose another")
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if index:
        text = text.replace("$", "$$")
    return f'"{text}"'
