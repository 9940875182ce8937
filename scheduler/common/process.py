"""Linux processes by descriptor: pidfds, exit statuses as text, start times, memory.

Guarantees
    * A signal sent here reaches the process that the pidfd was opened for, or none: a reused pid is never hit.
    * A pid from a board or a file names a process only together with its start time, which is compared after the pidfd
      was opened (`open_proven`). 0 and negative numbers, which mean groups, name no process.
    * A reaper here names the one child that it reaps; libraries reap their own.

Relies on: Linux 5.4 (pidfd, waitid by pidfd).

An *exit status* is a number as `os.waitpid` returns it, from whatever source.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

from squall.engine.errors import ClusterError

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CORE_DUMPED = 0x80
EXIT_WRONG_USE = 2
"""Exit code of a daemon that refused its arguments or its directory: it would refuse them again."""


def open_pidfd(pid: int) -> int:
    """A close-on-exec descriptor that becomes readable when `pid` ends. ClusterError if there is no such process."""
    if pid <= 0:
        raise ClusterError(f"pid {pid} names no process")
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise ClusterError(f"process {pid} does not exist") from None
    except OSError as error:
        raise ClusterError(f"cannot watch process {pid}: {error.strerror}") from error


def open_proven(pid: int, started_ticks: int) -> int:
    """A pidfd of the process that had this pid and this start time (see `start_time_ticks`), for the caller to close.

    ClusterError if it has ended, reaped or not, or if another process has its pid by now.
    """
    pidfd = open_pidfd(pid)
    try:
        # Check after opening the pidfd: if the pid is the right process now, so is the descriptor.
        if not lives(pid, started_ticks):
            raise ClusterError(f"process {pid} has ended")
    except BaseException:
        os.close(pidfd)
        raise
    return pidfd


def send_signal_proven(pid: int, started_ticks: int, signum: int) -> bool:
    """Signal the process that had this pid and this start time. False, and no signal, if it has ended."""
    try:
        pidfd = open_proven(pid, started_ticks)
    except ClusterError:
        return False
    try:
        return send_signal(pidfd, signum)
    finally:
        os.close(pidfd)


def send_signal(pidfd: int, signum: int) -> bool:
    """Signal one process. False if it has ended."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise ClusterError(f"cannot send {signal_name(signum)} through a pidfd: {error.strerror}") from error
    return True


def send_signal_to_group(pid: int, signum: int) -> bool:
    """Signal the process group that `pid` leads, dead or alive. False if the group is empty.

    Called right after the leader's end was seen, or it was proven: its pid cannot have been reused yet.
    """
    if pid <= 1:
        raise ClusterError(f"pid {pid} leads no process group of ours")
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reap(pidfd: int) -> int | None:
    """Exit status of a child, None while it lives. ChildProcessError if it is another process's child."""
    ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    return None if ended is None else _exit_status(ended)


def peek_dead_child() -> int | None:
    """Pid of a dead child that was not reaped yet, without reaping it; None if there is none."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid


def _exit_status(ended: os.waitid_result) -> int:
    if ended.si_code == os.CLD_EXITED:
        return ended.si_status << 8
    return ended.si_status | (CORE_DUMPED if ended.si_code == os.CLD_DUMPED else 0)


def signal_name(signum: int) -> str:
    """ "SIGKILL" for 9; "signal 40" for numbers without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def describe_status(status: int) -> str:
    """How a process ended, for people: "killed by SIGKILL", "exited with code 1"."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal_name(os.WTERMSIG(status))}"
    return f"exited with code {os.WEXITSTATUS(status)}"


def start_time_ticks(pid: int) -> int:
    """Start of a process in clock ticks since boot: with the pid it names a process for good."""
    return int(_stat(pid)[22 - 3])


def exists(pid: int) -> bool:
    """Whether a process with this pid runs; False for a zombie."""
    return _state(pid) not in ("", "Z", "X")


def status_of_zombie(pid: int) -> int | None:
    """The exit status, as from `os.waitpid`, of a process of this user that has ended and was not reaped yet; None if
    it cannot be told."""
    try:
        fields_from_third = _stat(pid)
    except ClusterError:
        return None
    # The kernel shows 0 also to those who may not know.
    return int(fields_from_third[52 - 3]) or None if fields_from_third[0] == "Z" else None


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process and it has not gone on; False if a debugger holds it."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    """The letter of a process's state; "" if there is no such process."""
    try:
        return _stat(pid)[0]
    except ClusterError:
        return ""


def _stat(pid: int) -> list[str]:
    """The kernel's facts about a process, from the third on. They are counted from the end of the command name: in its
    brackets, it may contain brackets and blanks."""
    return _read_proc(pid, "stat").rpartition(")")[2].split()


def lives(pid: int, started_ticks: int) -> bool:
    """Whether the process with this pid and this start time runs. For display; before a signal, use `open_proven`."""
    try:
        return pid > 0 and exists(pid) and start_time_ticks(pid) == started_ticks
    except ClusterError:
        return False


def secs_since(started_ticks: int) -> float:
    """Seconds since a start time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 for a zombie."""
    return int(_read_proc(pid, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed since boot because memory ran out, in any container."""
    with open("/proc/vmstat", encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)


def _read_proc(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        raise ClusterError(f"process {pid} does not exist") from None


def become_subreaper() -> None:
    """Make orphaned descendants children of this process, so that it can reap them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, "become a subreaper")


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, "tie a process to its parent")


def outlive_parent() -> None:
    """Take back `die_with_parent`."""
    _prctl(PR_SET_PDEATHSIG, 0, "untie a process from its parent")


def _prctl(option: int, value: int, purpose: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise ClusterError(f"cannot {purpose}: {os.strerror(ctypes.get_errno())}")


def thread_count() -> int:
    """Threads of this process, counted by the kernel, which sees those of libraries too."""
    return len(os.listdir("/proc/self/task"))
