"""A systemd user unit that keeps a standing cluster, and what `squall up` tells systemd when it runs in one.

Guarantees: what is printed is read by systemd as it is meant, whatever the names of directories hold.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
from pathlib import Path

from squall.cli.interrupts import EXIT_INTERRUPTED, EXIT_TERMINATED
from squall.engine.errors import UsageError
from squall.scheduler.forking.interpreter import interpreter

_END_MARGIN_SECS = 30
"""On top of the drain: what workers, supervisors and Nimbus get to end, and then some."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+-]+")
_UNIT = """\
# squall up --systemd > ~/.config/systemd/user/squall.service
# systemctl --user daemon-reload && systemctl --user enable --now squall
[Unit]
Description=Squall cluster of {nodes} x {slots} slots

[Service]
Type=notify
ExecStart={command}
# SIGTERM goes to the command alone, which drains the cluster and ends it.
KillMode=mixed
SuccessExitStatus={interrupted} {terminated}
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
    """The text of the unit; `directory`: None for the one of the user. UsageError for a directory that no unit can
    name."""
    if not math.isfinite(drain_secs):
        raise UsageError(f"the wait is {drain_secs}, allowed is a number of seconds from 0 up")
    command = [*interpreter("squall"), "up", "--nodes", str(nodes), "--slots", str(slots), "--wait", f"{drain_secs:g}"]
    if not faults:
        command.append("--no-faults")
    if directory is not None:
        command += ["--dir", os.path.abspath(directory)]
    return _UNIT.format(
        nodes=nodes, slots=slots, command=" ".join(_quoted(word, index) for index, word in enumerate(command)),
        interrupted=EXIT_INTERRUPTED, terminated=EXIT_TERMINATED, stop_secs=round(drain_secs) + _END_MARGIN_SECS,
    )


def tell_ready() -> None:
    """In a unit of Type=notify: the cluster answers. Elsewhere nobody listens."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    # An abstract address begins with @ in the environment, and with NUL for the kernel.
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, contextlib.suppress(OSError):
        # Whoever set the variable and does not listen waits for nothing.
        notify.sendto(b"READY=1", name)


def _quoted(word: str, index: int) -> str:
    """A word of ExecStart, which knows C's escapes, specifiers (%) and, but in the first word, variables ($)."""
    if _PLAIN.fullmatch(word):
        return word
    if not word.isprintable():
        raise UsageError(f"the directory {word!r} has characters that no systemd unit can name: choose another")
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if index:
        text = text.replace("$", "$$")
    return f'"{text}"'
