"""What a test left behind: processes, threads, descriptors, run directories.

Guarantees: `Snapshot` before and `find_leaks` after name everything of ours that is there now and was not there
then, with the evidence needed to find who made it. Nobody else's processes and files are blamed or touched.
`find_leaks` waits up to a deadline for things to go away, because a killed process takes a moment to do so.

Relies on: /proc (Linux), and on `RunMarker` to tell an orphan of this test run from everyone else's processes.

What may stay is listed in the ALLOWED constants, with the reason. The Java machine that PySpark starts from this
process may stay too, with its children and connections: PySpark keeps it until the interpreter ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

MARKER_VARIABLE = "SQUALL_TEST_RUN_MARKER"
DEADLINE_SECS = 30.0
POLL_SECS = 0.05
STACK_DEPTH = 6

ALLOWED_THREAD_OWNERS = ("py4j", "pyspark")  # packages: PySpark's gateway threads live as long as its Java machine
ALLOWED_THREAD_NAMES = re.compile(r"^pytest_timeout ")  # if someone chooses its thread method
ALLOWED_NATIVE_NAMES = re.compile(r"^jemalloc_bg_thd")  # pyarrow's allocator, from its first use on
ALLOWED_DESCRIPTORS = re.compile(r"^/dev/(null|u?random|tty|pts/\d+)$")  # opened once and kept by libraries


class RunMarker:
    """Marks every process started from now on, so that orphans are recognised when no parent leads to them any more.

    The environment variable is inherited across exec, the descriptor across a fork without exec (where the kernel
    goes on showing the environment that this process itself was started with).
    """

    def __init__(self) -> None:
        self.value = secrets.token_hex(8)
        self._outer = os.environ.get(MARKER_VARIABLE)
        # A test run inside a test carries both marks, so that the outer run finds its orphans too.
        os.environ[MARKER_VARIABLE] = self.value if self._outer is None else f"{self._outer}.{self.value}"
        self._descriptor = os.memfd_create(f"{MARKER_VARIABLE}.{self.value}")

    def close(self) -> None:
        os.close(self._descriptor)
        os.environ.pop(MARKER_VARIABLE)
        if self._outer is not None:
            os.environ[MARKER_VARIABLE] = self._outer

    def carriers(self) -> Iterator[psutil.Process]:
        """Every live process that carries the mark, except this one."""
        for process in psutil.process_iter():
            if process.pid != os.getpid() and self._marks(process.pid):
                yield process

    def _marks(self, pid: int) -> bool:
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            if self.value.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return True
            # Whoever was forked without an exec runs this very program: no other's descriptors, of a Java machine say,
            # need to be looked at before and after every test.
            return os.readlink(f"/proc/{pid}/exe") == os.readlink("/proc/self/exe") and any(
                target.startswith(f"/memfd:{MARKER_VARIABLE}.{self.value}") for _, target in _descriptors(pid)
            )
        return False


class Snapshot:
    """What there is at one moment. Without a marker only what can be read in well under a millisecond is taken."""

    def __init__(self, marker: RunMarker | None = None, run_parent: Path | None = None) -> None:
        """`marker` asks for the whole: orphans, and the run directories in `run_parent`."""
        self.marker, self.run_parent = marker, run_parent
        # A thread that has just begun has not named itself yet, and is not listed.
        self.threads, self.descriptors = {*_threads(), *_native_ids()}, set(_descriptors())
        self.processes, self.files = _processes(marker), set(_files(run_parent)) if marker else set()


@dataclass(frozen=True)
class Leaks:
    """What is there now and was not before; false when that is nothing."""

    processes: tuple[psutil.Process, ...]
    evidence: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.evidence)

    def __str__(self) -> str:
        return "\n".join(self.evidence)

    def end_processes(self) -> None:
        """Kill and reap what leaked, so that one leak fails one test and the machine is left clean."""
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for process in self.processes:
            with contextlib.suppress(ChildProcessError):  # an orphan: not ours to reap
                os.waitpid(process.pid, 0)


def find_leaks(before: Snapshot, deadline_secs: float = DEADLINE_SECS, *, lasting_only: bool = False) -> Leaks:
    """Poll until nothing is left or the deadline has passed. `lasting_only` leaves threads and descriptors out, which a
    failed test's traceback may still hold."""
    deadline = time.monotonic() + deadline_secs
    leaks = _compare(before, lasting_only)
    if leaks:
        gc.collect()  # what only a reference cycle still holds is on its way out
    while leaks and time.monotonic() < deadline:
        time.sleep(POLL_SECS)
        leaks = _compare(before, lasting_only)
    return leaks


def _compare(before: Snapshot, lasting_only: bool) -> Leaks:
    processes = _new_processes(before)
    evidence = [_process_line(process) for process in processes]
    if not lasting_only:
        evidence += _new_threads(before)
        evidence += _new_descriptors(before)
    if before.marker:
        evidence += [f"left behind: {path}" for path in sorted(set(_files(before.run_parent)) - before.files)]
    return Leaks(tuple(processes), tuple(evidence))


# Processes


def _processes(marker: RunMarker | None) -> set[psutil.Process]:
    """With a marker: all descendants and orphans. Without: children, as the kernel lists them for each thread."""
    if marker:
        return {*psutil.Process().children(recursive=True), *marker.carriers()}
    found = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            for pid in listing.read_text().split():
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.add(psutil.Process(int(pid)))
    return found


def _new_processes(before: Snapshot) -> list[psutil.Process]:
    """A process whose ancestor was there before belongs to that ancestor (a shared cluster that replaces a worker)."""
    kept = before.processes | set(_java_machines())
    new = []
    for process in _processes(before.marker) - kept:
        with contextlib.suppress(psutil.NoSuchProcess):
            if kept.isdisjoint(process.parents()):
                process.status()  # raises if it ended meanwhile
                new.append(process)
    return sorted(new, key=lambda process: process.pid)


def _java_machines() -> list[psutil.Process]:
    """PySpark's, started by this very process; one that outlived the process that started it is a leak like any."""
    found = []
    for process in _processes(None):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "java" and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _process_line(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            status, parent, age_secs = process.status(), process.ppid(), time.time() - process.create_time()
            command = process.name() if status == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
        return f"process {process.pid} (parent {parent}, {status}, {age_secs:.1f} s old): {command[:200]}"
    except psutil.NoSuchProcess:
        return f"process {process.pid} (ended while it was looked at)"


# Threads


def _threads() -> dict[int, tuple[str, FrameType | None]]:
    """Thread id -> name and stack. Native threads named as this process are left out: libraries keep pools of them, as
    pyarrow and BLAS do, and so does pytest's own watchdog."""
    found: dict[int, tuple[str, FrameType | None]] = {}
    frames = sys._current_frames()
    alive = _native_ids()
    known = {thread.native_id: thread for thread in threading.enumerate()}
    for native_id, thread in known.items():
        frame = frames.pop(thread.ident or 0, None)
        if native_id in alive and not _may_stay(thread):
            found[native_id] = f"thread {thread.name!r} ({type(thread).__name__}, daemon={thread.daemon})", frame
    for ident, frame in frames.items():
        found[ident] = f"thread {ident}, started without the threading module", frame
    own_name = Path("/proc/self/comm").read_text()
    for native_id in alive - known.keys():
        with contextlib.suppress(OSError):  # it ended meanwhile
            name = Path(f"/proc/self/task/{native_id}/comm").read_text()
            if name != own_name and not ALLOWED_NATIVE_NAMES.match(name):
                hint = " (a ZeroMQ context that was not terminated)" if name.startswith("ZMQbg") else ""
                found[native_id] = f"native thread {name.strip()!r}{hint}", None
    return found


def _native_ids() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def _new_threads(before: Snapshot) -> list[str]:
    threads = _threads()
    lines = []
    for thread in sorted(threads.keys() - before.threads):
        name, frame = threads[thread]
        stack = "".join(traceback.format_stack(frame)[-STACK_DEPTH:]) if frame else ""
        lines.append(f"{name}\n{stack}".rstrip())
    return lines


def _may_stay(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    owners = (type(thread).__module__, type(getattr(target, "__self__", None)).__module__)
    return bool(ALLOWED_THREAD_NAMES.match(thread.name)) or any(
        owner.partition(".")[0] in ALLOWED_THREAD_OWNERS for owner in owners
    )


# Descriptors


def _descriptors(pid: int | None = None) -> Iterable[tuple[int, str]]:
    directory = f"/proc/{pid or 'self'}/fd"
    for number in os.listdir(directory):
        with contextlib.suppress(OSError):  # closed meanwhile, as the one that lists this directory
            yield int(number), os.readlink(f"{directory}/{number}")


def _new_descriptors(before: Snapshot) -> list[str]:
    new = {
        number: target
        for number, target in set(_descriptors()) - before.descriptors
        if not ALLOWED_DESCRIPTORS.match(target)
    }
    if not new:
        return []
    connections = {connection.fd: connection for connection in psutil.Process().net_connections(kind="all")}
    machines = _java_machines()
    theirs = {target for machine in machines for _, target in _descriptors(machine.pid)}
    lines = []
    for number, target in sorted(new.items()):
        connection = connections.get(number)
        loopback = bool(connection and connection.laddr and getattr(connection.laddr, "ip", "").endswith("127.0.0.1"))
        if target in theirs or (machines and loopback):
            continue  # PySpark's pipes and connections to its Java machine; Squall itself talks over unix sockets
        where = f" {connection.laddr or ''} -> {connection.raddr or ''} {connection.status}" if connection else ""
        lines.append(f"descriptor {number}: {target}{where}")
    return lines


# Files


def _files(run_parent: Path | None) -> Iterator[Path]:
    if run_parent is not None and run_parent.is_dir():
        # The lock of the run directories' parent stays, by design: removing it races with its next user.
        yield from (path for path in run_parent.iterdir() if path.name != ".lock")
