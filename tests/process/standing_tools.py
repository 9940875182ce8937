"""A standing cluster for a test: made and ended by the commands that people use, in a directory of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from squall.cli import main
from squall.cli.cluster_access import job_of
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import describe
from squall.scheduler.client.statuses import Status
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from tests.process.cli import ROOT, squall
from tests.process.waiting import wait_for

ENDLESS = "tests/process/standing_topologies.py"


class Finished(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def in_process(*arguments: str | Path, **extra: str) -> Finished:
    """A command as people run it, without the time that a process takes to start."""
    before = dict(os.environ)
    # The topologies of these tests import `tests`, which the command imports in a process of its own.
    os.environ.update({"PYTHONPATH": str(ROOT), **extra})
    # Some commands write bytes.
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([str(argument) for argument in arguments])
    except SystemExit as end:
        out.seek(0)
        return Finished(int(end.code or 0), out.read(), err.getvalue())
    finally:
        os.environ.clear()
        os.environ.update(before)
    raise AssertionError("the command returned without an exit code")


class Standing:
    """Commands to one cluster's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_dir = RunDir(path)

    def apart(self, *arguments: str | Path, **extra: str) -> Finished:
        """A command as people run it, in a process of its own; whatever came of it."""
        done = squall(*arguments, **{"SQUALL_DIR": str(self.path), **extra})
        return Finished(done.returncode, done.stdout, done.stderr)

    def run(self, *arguments: str | Path, **extra: str) -> Finished:
        """The same, without the time that a process takes to start, where the command allows it."""
        if arguments[0] in ("up", "nimbus", "supervisor"):
            return self.apart(*arguments, **extra)
        return in_process(*arguments, **{"SQUALL_DIR": str(self.path), **extra})

    def clear(self) -> None:
        """Remove all topologies with what they left, and all faults."""
        self.ok("heal")
        for row in self.json("list")["topologies"]:
            self.ok("kill", row["name"], "-w", "0")
        self.ok("clean", "--dir", self.path, "--remove", "--dead-letters")

    def kill_all(self) -> None:
        """SIGKILL for every process, also for those that one of them starts before its turn comes."""
        wait_for("the end of all", self._are_dead)

    def _are_dead(self) -> bool:
        for process in processes_of(self.run_dir):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not processes_of(self.run_dir)

    def ok(self, *arguments: str | Path, **extra: str) -> str:
        """Its stdout; AssertionError with its stderr if it failed."""
        done = self.run(*arguments, **extra)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str | Path, **extra: str) -> Any:
        return json.loads(self.ok(arguments[0], "--json", *arguments[1:], **extra))

    def described(self, name: str) -> Status:
        """What `squall status` would say, without the time that a command takes."""
        with job_of(str(self.path), name) as job:
            before = job.stats()
            time.sleep(0.05)
            return describe(job, before)

    def refused(self, code: int, *arguments: str | Path, **extra: str) -> str:
        """The one line on stderr of a command that failed with `code`."""
        done = self.run(*arguments, **extra)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert done.stdout == ""
        assert done.stderr.startswith("squall: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.removeprefix("squall: ").rstrip()

    def keeper(self) -> psutil.Process:
        """The process that starts the daemons again."""
        return wait_for("the keeper", self._keeper)

    def _keeper(self) -> psutil.Process | None:
        found = processes_of(self.run_dir)
        return next((process for process in found if role_of(process) == Role(RoleKind.KEEPER)), None)

    def lose_keeper(self) -> None:
        """From now on nobody brings daemons back, as where they were started singly."""
        keeper = self.keeper()
        keeper.kill()
        keeper.wait()
        self.run_dir.keeper_lock.unlink()

    @contextlib.contextmanager
    def keeper_held(self) -> Iterator[psutil.Process]:
        """The keeper, stopped: what is killed meanwhile stays away until it is resumed, here or by the caller."""
        keeper = self.keeper()
        keeper.suspend()
        try:
            yield keeper
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):  # `down` has ended it
                keeper.resume()

    def nimbus(self) -> psutil.Process:
        """The Nimbus that runs, or the next one."""
        return wait_for("Nimbus", self._nimbus)

    def _nimbus(self) -> psutil.Process | None:
        holder = self.run_dir.lock_holder()
        if holder is None or not holder.isdecimal():
            return None
        try:
            return psutil.Process(int(holder))
        except psutil.NoSuchProcess:
            return None

    def supervisor(self, node: str) -> psutil.Process:
        role = Role(RoleKind.SUPERVISOR, node)
        return next(process for process in processes_of(self.run_dir) if role_of(process) == role)

    def up(self, nodes: int = 1, slots: int = 2) -> None:
        self.ok("up", "--nodes", str(nodes), "--slots", str(slots), "--detach")


@contextlib.contextmanager
def directory() -> Iterator[Standing]:
    """No cluster yet; whatever is started in it is stopped and removed. Short, for the sake of socket paths."""
    path = Path(tempfile.mkdtemp(prefix="c-", dir=os.environ["XDG_RUNTIME_DIR"])) / "c"
    cluster = Standing(path)
    try:
        yield cluster
    finally:
        if path.exists():
            cluster.run("down", "-w", "0")
            RunDir(path).remove()
        path.parent.rmdir()
