"""The program of a server that tests share: some of them kill it, and start it again on what it had written."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from tests.needs import ROOT, require
from tests.process.waiting import wait_for


class Program:
    """Its parent is a shell that stays, so that one that is started again is no new process of a test."""

    CRASH = signal.SIGKILL

    def __init__(
        self, command: Sequence[str | Path], directory: Path, answers: Callable[[], bool], *,
        environment: Mapping[str, str] | None = None, user: str | None = None,
    ) -> None:
        """`answers()` tells whether the server can be used. It runs in `directory`, and what it says is in a file."""
        self.output, self._answers = directory / "output", answers
        self._pid: int | None = None
        # Who runs the tests may be killed: then the shell reads no more, and ends what it started.
        script = 'while read -r _; do "$@" </dev/null >>output 2>&1 & echo $!; done; kill -9 $! 2>/dev/null; wait'
        self._parent = subprocess.Popen(
            ["sh", "-c", script, "sh", *command], cwd=directory, env=environment, user=user,
            extra_groups=None if user is None else (), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        if not self._runs():
            self._parent.stdin.write("\n")
            self._parent.stdin.flush()
            self._pid = int(self._parent.stdout.readline())
        wait_for(f"the server, of which {self.output} tells", self._is_up)

    def _is_up(self) -> bool:
        assert self._runs(), self.output.read_text()
        return self._answers()

    def _runs(self) -> bool:
        if self._pid is None:
            return False
        try:
            return psutil.Process(self._pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        """As a crash, and wait until it is gone. What it has acknowledged is there again after `start`."""
        if self._pid is not None and self._runs():
            os.kill(self._pid, self.CRASH)
            wait_for("the end of the server", lambda: not self._runs())

    def close(self) -> None:
        self.kill()
        self._parent.communicate()


Made = TypeVar("Made", bound=Program)


@contextmanager
def started(make: Callable[[Path], Made], needed: str) -> Iterator[Made]:
    """Start a server in a directory of its own, whose path is short: those of sockets end at 107 bytes."""
    require(needed)
    with tempfile.TemporaryDirectory(prefix=f"{needed}-") as name, closing(make(Path(name))) as server:
        server.start()
        yield server


def java(name: str, megabytes: int) -> list[str]:
    """The beginning of a command that runs a program whose jars are in this folder of build/."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else "java"
    return [
        program, f"-Xmx{megabytes}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{ROOT}/build/{name}/*",
    ]
