"""Starter: a process that imports the daemons' modules while its program does other things, then forks the daemons.

To start interpreters and import modules is most of the time that a cluster takes to start. A command that will need a
cluster begins with this, and loads the user's code meanwhile.

Guarantees
    * Nothing of the cluster runs before `fork` is called. If it is not, `close` ends the starter and removes the
      directory, and so does the death of this process, in whatever way.
    * After `hand_over` the daemons are children of this process, as if it had executed them.
    * They have the environment and the working directory that this process has when they are forked.

What is not needed to start it is imported later: each millisecond before that is one more until the cluster answers.

Relies on: being used by a command, whose process is its own: while the starter ends, orphans of this process's other
children become its children, too. Thread: main.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import opener
from squall.ipc.rundir import RunDir, default_parent, sweep_stale
from squall.scheduler.cluster.daemon_environment import daemon_environment
from squall.scheduler.forking.interpreter import interpreter

if TYPE_CHECKING:
    from squall.scheduler.cluster.daemons import Launch
    from squall.scheduler.forking.module import ForkedModule

MODULE = "squall.scheduler.cluster.starter_main"
DONE = b"done"
"""The last order."""
ANSWER_SECS = 10.0
"""Longest wait for the starter, which may still import: some twenty times as long as that takes."""
_ANSWER_BYTES = 4096


class Order(msgspec.Struct):
    """To the starter: a daemon to fork."""

    module: str
    arguments: list[str]
    log_path: bytes
    pass_fds: list[int]
    environment: dict[bytes, bytes]
    cwd: bytes


class Answer(msgspec.Struct):
    """From the starter: the daemon's pid, or why there is none."""

    pid: int = 0
    error: str = ""


class Starter:
    """The starter of one cluster in an anonymous run directory, which is the cluster's once it is handed over."""

    def __init__(self) -> None:
        sweep_stale(default_parent())
        self.run_dir = RunDir.create()
        self.lifeline = os.pipe2(os.O_CLOEXEC)
        """(read, write) of the pipe that binds the daemons to this process."""
        self.ready = os.pipe2(os.O_CLOEXEC)
        """(read, write) of the pipe in which the daemons say that they are ready."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_SECS)
        self._handed_over = False
        arguments = ("--fd", str(theirs.fileno()), "--dir", str(self.run_dir.path))
        try:
            with theirs, open(self.run_dir.daemon_log("starter"), "ab", opener=opener) as log:
                self._process = subprocess.Popen(
                    [*interpreter(MODULE), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=(theirs.fileno(), self.lifeline[0], self.ready[1]),
                    start_new_session=True, env=daemon_environment(self.run_dir),
                )
        except BaseException:
            self._close_all()
            raise

    def fork(self, launch: Launch) -> ForkedModule:
        """Have a daemon forked; its pass_fds must be among those of the pipes. ClusterError if that fails."""
        from squall.scheduler.forking.module import ForkedModule

        variables = daemon_environment(launch.run_dir)
        environment = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
        order = Order(
            launch.module, list(launch.arguments), os.fsencode(launch.log_path), list(launch.pass_fds), environment,
            os.fsencode(os.getcwd()),
        )
        try:
            self._socket.sendall(msgspec.msgpack.encode(order))
            said = self._socket.recv(_ANSWER_BYTES)
        except OSError as error:
            # It must not carry the order out later: the daemon is started in another way now.
            self._process.kill()
            raise ClusterError(f"the starter does not answer: {error}") from error
        if not said:
            raise ClusterError("the starter has ended")
        answer = msgspec.msgpack.decode(said, type=Answer)
        if answer.error:
            raise ClusterError(answer.error)
        return ForkedModule(answer.pid)

    def hand_over(self) -> None:
        """End the starter. Its daemons become this process's children; pipes and directory are the caller's."""
        from squall.scheduler.common import process

        self._handed_over = True
        process.become_subreaper()
        try:
            # If it has died, its daemons are this process's children already.
            with contextlib.suppress(OSError):
                self._socket.sendall(DONE)
            self._socket.close()
            try:
                self._process.wait(ANSWER_SECS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        finally:
            process.be_no_subreaper()

    def close(self) -> None:
        """End it without a cluster, unless it was handed over."""
        if not self._handed_over:
            self._handed_over = True
            self._process.kill()
            self._process.wait()
            self._close_all()

    def __enter__(self) -> Starter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_all(self) -> None:
        self._socket.close()
        for fd in (*self.lifeline, *self.ready):
            with contextlib.suppress(OSError):
                os.close(fd)
        self.run_dir.remove()
