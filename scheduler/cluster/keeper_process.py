"""A keeper (`scheduler.cluster.keeper_main`), as the process that launches it sees it.

To start interpreters and import modules is most of the time that a cluster takes to start. A command that will need a
cluster launches its keeper first, and loads the user's code meanwhile.

Guarantees
    * Nothing of the cluster runs before `start`, which returns when the cluster answers; otherwise it raises the
      keeper's error, and leaves no process behind.
    * The cluster stops when this process ends, in whatever way, unless `start` says otherwise: the daemons hold the
      other end of the pipe to the keeper.
    * The daemons have the environment and the working directory that this process has when `start` is called.

What is not needed to launch it is imported later: each millisecond before that is one more until the cluster answers.
Thread: any. Other threads or a ZeroMQ context of this process do no harm: the keeper forks, not it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Sequence

import msgspec

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import opener
from squall.ipc.run_parent import default_parent, sweep_stale
from squall.ipc.rundir import RunDir
from squall.scheduler.common.process import EXIT_WRONG_USE, peek_dead_child
from squall.scheduler.common.role import MODULES, RoleKind, daemon_environment, end_lost, interpreter, last_words

LENGTH_BYTES = 4
BEGAN = b"+"
"""A keeper's report that the cluster answers. Otherwise it reports the error, and its exit code tells which kind."""
END_PATIENCE_SECS = 10.0
"""Longest wait for a keeper to end when its cluster was told to: twice the workers' grace."""


class KeeperOrder(msgspec.Struct):
    """To the keeper: start the cluster."""

    nodes: int
    slots: int
    environment: dict[bytes, bytes]
    directory: bytes
    """Working directory; empty if it was removed."""
    is_bound: bool
    """Whether the cluster ends with the launcher."""
    adopts: bool
    """Whether a keeper that was killed has left daemons, which are replaced."""
    ui: Sequence[str] | None = None
    """Options of its web page; None if there is to be none."""


class KeeperProcess:
    """The keeper of one cluster. A context manager."""

    def __init__(
        self, run_dir: RunDir | None = None, starting_fd: int | None = None, *, to_log: bool = True,
        keep_dir: bool = False, hash_seed: int | None = None,
    ) -> None:
        """Without a directory it makes an anonymous one, which goes with the cluster unless `keep_dir`.

        `starting_fd`: holds the right to start (`scheduler.cluster.starting`). `to_log`: the keeper writes to
        `keeper.log`, otherwise to this process's stderr. `hash_seed`: as in `RunDir.create`.
        """
        if run_dir is None:
            sweep_stale(default_parent())
        self.is_anonymous = run_dir is None
        self.keeps_dir = keep_dir
        self.run_dir = run_dir or RunDir.create(hash_seed=hash_seed)
        self._is_started = False
        command = [*interpreter(MODULES[RoleKind.KEEPER]), "--dir", str(self.run_dir.path)]
        if self.is_anonymous and not keep_dir:
            command.append("--remove-dir")
        if starting_fd is not None:
            command += ["--starting-fd", str(starting_fd)]
        try:
            with contextlib.ExitStack() as opened:
                log = None
                if to_log:
                    log = opened.enter_context(open(self.run_dir.daemon_log("keeper"), "ab", opener=opener))
                self._popen = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    pass_fds=() if starting_fd is None else (starting_fd,), start_new_session=True,
                    env=daemon_environment(self.run_dir),
                )
        except BaseException:
            if self.is_anonymous:
                self.run_dir.remove()
            raise

    def start(
        self, nodes: int, slots: int, *, is_bound: bool = True, adopts: bool = False, ui: Sequence[str] | None = None
    ) -> None:
        """Start the cluster. ClusterError or UsageError if that fails."""
        environment = daemon_environment(self.run_dir)
        order = KeeperOrder(
            nodes, slots, {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
            _current_directory(), is_bound, adopts, ui,
        )
        said = self._ask(msgspec.msgpack.encode(order))
        self._is_started = True
        if said != BEGAN:
            code = self._popen.wait()
            words = last_words(self.run_dir, "keeper")
            why = os.fsdecode(said) or f"the cluster's keeper exited with code {code}{words and f': {words}'}"
            raise UsageError(why) if code == EXIT_WRONG_USE else ClusterError(why)
        if not is_bound:
            # Popen's destructor would warn of a child that still runs.
            self._popen.returncode = 0

    def _ask(self, order: bytes) -> bytes:
        """Send the order; returns the report, nothing if the keeper has died."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        try:
            self._popen.stdin.write(len(order).to_bytes(LENGTH_BYTES, "little") + order)
            self._popen.stdin.flush()
        except BrokenPipeError:
            return b""
        with self._popen.stdout as pipe:
            return pipe.read()

    def await_end(self, timeout_secs: float) -> int | None:
        """Its exit code, 0 if no daemon was left; None if it still runs after `timeout_secs`."""
        if os.getpid() == 1:
            # The first process of a container inherits every process whose parent has died, and must reap it.
            while (pid := peek_dead_child()) is not None and pid != self._popen.pid:
                os.waitpid(pid, os.WNOHANG)
        if self._popen.poll() is None:
            # `Popen.wait` would look every 50 ms only.
            pidfd = os.pidfd_open(self._popen.pid)
            try:
                select.select([pidfd], [], [], timeout_secs)
            finally:
                os.close(pidfd)
        return self._popen.poll()

    def close(self) -> None:
        """Stop the cluster unless it has stopped, and wait for the keeper's end. May be called again."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        if not self._is_started:
            self._popen.kill()
        self._popen.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # it died with the order unread
            self._popen.stdin.close()
        if self.await_end(END_PATIENCE_SECS) is None:
            end_lost(self.run_dir)
            self._popen.wait()
        if not self._is_started and self.is_anonymous:
            self.run_dir.remove()

    def __enter__(self) -> KeeperProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _current_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return b""
