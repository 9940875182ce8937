"""The process of a ShellSpout or ShellBolt: starting it, its three pipes, and its end.

Guarantees
    * No call waits for the process, but `next_message` and those that end it.
    * It dies with the thread that started it, and with the worker, however that ended (`shell_launch`). It is
      in a session of its own, so Ctrl-C does not reach it, and what it started is ended with it.
    * What it writes to stderr, and what is no frame on stdout, is in the worker's log.

Thread: the component's.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from squall.connect.multilang.shell_frames import Message, ShellReader
from squall.connect.multilang.shell_launch import CANNOT, NOT_STARTED
from squall.engine.errors import ComponentError, SquallError
from squall.engine.foreign.text import plain_lines, repr_of

_CHUNK_BYTES = 1 << 16
EXIT_SECS = 1.0
"""Longest wait for a process that closed its stdout, or got SIGTERM, before it is killed."""
_LAST_WORDS = 200
"""Characters of the last line of stderr in an error."""


class ShellError(SquallError):
    """A program in another language has ended, hangs, or reported an error."""


class ShellProcess:
    """One process. Write with `send`; read with `receive` when `stdout` is readable, or with `next_message`."""

    def __init__(self, who: str, command: Sequence[str], directory: str, pid_dir: str, greeting: bytes) -> None:
        """Start it in a directory. It will leave a file with its pid as name in `pid_dir`, as the greeting tells it.
        ComponentError if there is no such directory; OSError if the machine refuses a process."""
        if not os.path.isdir(directory):
            raise ComponentError(f"{who} shall run {shlex.join(command)} in {directory}, which is no directory")
        self._who, self._called = who, f"{who}: {shlex.join(command)}"
        self.greeted = False
        """True once it has told its pid."""
        self._pid_dir, self._pid_file = pid_dir, ""
        self._reader, self._messages = ShellReader(), deque[Message]()
        self._to_send, self._error_rest = bytearray(), b""
        self._last_words = ""
        # The environment of a virtualenv is kept by PATH; stray prints come at once.
        self._popen = subprocess.Popen(
            [sys.executable, "-IS", str(Path(__file__).with_name("shell_launch.py")), str(os.getpid()), *command],
            cwd=directory, env={**os.environ, "PYTHONUNBUFFERED": "1"}, bufsize=0, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.pid = self._popen.pid
        self._pipes: list[Any] = [self._popen.stdin, self._popen.stdout, self._popen.stderr]
        self.stdin, self.stdout, self.stderr = fds = [pipe.fileno() for pipe in self._pipes]
        for fd in fds:
            os.set_blocking(fd, False)
        self.send(greeting)

    # ---- writing ----

    def send(self, message: bytes) -> None:
        """Send a message; what the pipe does not take yet goes by `flush`."""
        self._to_send += message
        self.flush()

    def flush(self) -> bool:
        """Write what waits; returns True if there is nothing left."""
        while self._to_send:
            try:
                del self._to_send[: os.write(self.stdin, self._to_send)]
            except BlockingIOError:
                return False
            except OSError:
                self._to_send.clear()  # it has ended, as its stdout will tell
        return True

    # ---- reading ----

    def receive(self) -> list[Message]:
        """Read what is there. ShellError if the process has ended or sent what is no JSON, ComponentError if it could
        not be started."""
        try:
            data = os.read(self.stdout, _CHUNK_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise self._ended()
        messages: list[Message] = []
        try:
            parts = list(self._reader.feed(data))
        except ValueError as error:
            raise ShellError(f"{self._called} sent a message that is no JSON: {repr_of(str(error))}") from None
        for part in parts:
            if isinstance(part, str):
                self._tell(part)
            elif not self.greeted and isinstance(part.get("pid"), int):
                self.greeted = True
                self._pid_file = os.path.join(self._pid_dir, str(part["pid"]))
            else:
                messages.append(part)
                # Some clients tell their pid before they make its file, but all make it before anything else.
                self._remove_pid_file()
        return messages

    def receive_errors(self) -> bool:
        """Read what is on stderr; returns False at its end."""
        try:
            data = os.read(self.stderr, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        *lines, self._error_rest = (self._error_rest + data + (b"" if data else b"\n")).split(b"\n")
        for line in lines:
            if text := line.decode(errors="replace").strip():
                self._last_words = text
                if CANNOT not in text:  # which ends the worker, and is told by that
                    self._tell(line.decode(errors="replace"))
        return bool(data)

    def await_greeting(self, timeout_secs: float) -> None:
        """Wait until it has told its pid. If it ends, or says nothing for so long, it is ended: ShellError."""
        self._await(lambda: self.greeted, timeout_secs, "tell its pid")

    def next_message(self, timeout_secs: float, doing: str) -> Message:
        """Wait for a message, in the same way. `doing`: what it was to do."""
        self._await(lambda: bool(self._messages), timeout_secs, doing)
        return self._messages.popleft()

    def _await(self, done: Callable[[], bool], timeout_secs: float, doing: str) -> None:
        try:
            self._read_until(done, timeout_secs, doing)
        except SquallError:
            self.end(0)
            raise

    def _read_until(self, done: Callable[[], bool], timeout_secs: float, doing: str) -> None:
        errors, until = True, monotonic() + timeout_secs
        while not done():
            if monotonic() >= until:
                raise self.silent(timeout_secs, doing)
            poll = select.poll()
            poll.register(self.stdout, select.POLLIN)
            if errors:
                poll.register(self.stderr, select.POLLIN)
            if self._to_send:
                poll.register(self.stdin, select.POLLOUT)
            ready = {fd for fd, _ in poll.poll(max(0.0, until - monotonic()) * 1000)}
            self.flush()
            if self.stderr in ready:
                errors = self.receive_errors()
            if self.stdout in ready:
                self._messages += self.receive()

    def silent(self, secs: float, doing: str) -> ShellError:
        """Make the error for a process that says nothing."""
        return ShellError(f"{self._called} said nothing of use for {secs:g} s; it was to {doing}")

    def _tell(self, text: str) -> None:
        sys.stderr.write(plain_lines(text.rstrip("\n")) + "\n")
        sys.stderr.flush()

    # ---- the end ----

    def _ended(self) -> SquallError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(EXIT_SECS)
        while self.receive_errors():
            if not select.select([self.stderr], [], [], 0)[0]:
                break
        if rest := self._reader.rest().strip():
            self._tell(rest)
        code = self._popen.poll()
        if code == NOT_STARTED and CANNOT in self._last_words:
            return ComponentError(f"{self._who}: {self._last_words}")  # ends the run sooner
        if code is None:
            how = "closed its stdout"
        elif code < 0:
            how = f"was ended by signal {-code} ({signal.Signals(-code).name})"
        else:
            how = f"ended with exit code {code}"
        words = f": {self._last_words[:_LAST_WORDS]}" if self._last_words else ""
        return ShellError(f"{self._called} {how}{words}")

    def end(self, patience_secs: float = EXIT_SECS) -> None:
        """End it and what it started, by SIGTERM if it has time, and close the pipes. A second time does nothing."""
        pipes, self._pipes = self._pipes, []
        for signum, secs in ((signal.SIGTERM, patience_secs), (signal.SIGKILL, None)):
            if pipes and secs != 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signum)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(secs)
        for pipe in pipes:
            pipe.close()
        self._remove_pid_file()

    def _remove_pid_file(self) -> None:
        if self._pid_file:
            with contextlib.suppress(OSError):
                os.unlink(self._pid_file)
            self._pid_file = ""
