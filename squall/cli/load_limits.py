"""Imports a topology file in a throw-away process under limits, for `squall submit`.

Guarantees: whatever the file does (hangs, fills the memory, prints without end, ends the process, leaves processes
behind), it is stopped, every process that it started is ended, in any session, and the caller gets one line that names
the exceeded limit. Other children of the calling process are left alone. The memory limit is per process. A hostile
file can escape: it runs as the user who submits it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import subprocess
import time
from collections.abc import Mapping

import msgspec

from squall.cli.help_shown import HelpShown
from squall.cli.layers import Layers
from squall.cli.output import note
from squall.engine.api.config import Config
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.plain_text import plain
from squall.scheduler.client.topology_code import TopologyCode
from squall.scheduler.common.messages import Wire
from squall.scheduler.common.process import describe_status
from squall.scheduler.forking.interpreter import interpreter

TIME_SECS = 60.0
MEMORY_BYTES = 4 << 30
"""Address space, the size that the kernel can limit: numpy and Arrow reserve one or two GiB without using them."""
OUTPUT_BYTES = 1 << 20
CODE_BYTES = 256 << 20
"""Largest pickled topology: one with more data should read it from a file in `open` or `prepare`."""
_READ_BYTES = 1 << 16
_END_SECS = 1.0
_GUARD_SECS = 10.0
"""Longest wait for the kernel to end killed processes."""


class LoadRequest(Wire, frozen=True):
    """Request to the throw-away process, on its stdin."""

    target: bytes
    """As the shell gave it, like arguments and app_dir: a path may have bytes that are no text."""
    arguments: list[bytes]
    app_dir: bytes | None
    below: dict[str, object]
    above: dict[str, object]
    environment: dict[str, str]
    memory_bytes: int


class Refusal(Wire, frozen=True, tag=True):
    """Answer: the file is refused."""

    message: str
    traceback: str
    is_help: bool = False
    """Whether a topology function was asked for its help, and has shown it."""


class Loaded(Wire, frozen=True, tag=True):
    """Answer: the topology to submit."""

    code: TopologyCode
    settings: dict[str, object]
    """Those that hold, the code's own included."""


def load_apart(
    target: str, arguments: list[str], layers: Layers, time_secs: float = TIME_SECS,
    memory_bytes: int = MEMORY_BYTES, app_dir: str | None = None, environment: Mapping[str, str] | None = None,
) -> tuple[TopologyCode, Config]:
    """Import `target` in a process of its own. UsageError (its note is the user's traceback) if that fails."""
    given = [os.fsencode(argument) for argument in arguments], None if app_dir is None else os.fsencode(app_dir)
    variables = dict(environment or {})
    request = msgspec.msgpack.encode(
        LoadRequest(os.fsencode(target), *given, layers.below, layers.above, variables, memory_bytes)
    )
    answer_read, answer_write = os.pipe2(os.O_CLOEXEC)
    lifeline_read, lifeline = os.pipe2(os.O_CLOEXEC)
    try:
        child = subprocess.Popen(
            [*interpreter("squall.cli.load_guard"), str(answer_write), str(lifeline_read)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[answer_write, lifeline_read],
            start_new_session=True,
        )
    except OSError as error:
        os.close(answer_read)
        os.close(lifeline)
        raise ClusterError(f"cannot start a process to import {target}: {error.strerror}") from error
    finally:
        os.close(answer_write)
        os.close(lifeline_read)
    try:
        return _follow(child, request, answer_read, target, time_secs)
    finally:
        os.close(answer_read)
        os.close(lifeline)
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        _await_guard(child, target)


def _await_guard(child: subprocess.Popen[bytes], target: str) -> None:
    """Wait for the guard, which ends when no process that the file started is left."""
    try:
        child.wait(_GUARD_SECS)
    except subprocess.TimeoutExpired:
        note(f"processes that importing {plain(target)} started do not end, {_GUARD_SECS:g} s after SIGKILL")
        child.kill()
        child.wait()


def _follow(
    child: subprocess.Popen[bytes], request: bytes, answer: int, target: str, time_secs: float
) -> tuple[TopologyCode, Config]:
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(request)
        child.stdin.close()
    received, printed = _Intake(answer, CODE_BYTES), _Intake(child.stdout.fileno(), OUTPUT_BYTES)
    deadline = time.monotonic() + time_secs
    # Until the answer's end, not the output's: a process that the file left behind may hold the output open.
    while not received.ended:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise UsageError(f"importing {target} took longer than {time_secs:g} s; start what takes long in open()")
        readable = select.select([i.fd for i in (received, printed) if not i.ended], [], [], remaining)[0]
        for intake in (received, printed):
            if intake.fd in readable:
                intake.read()
        if printed.overflowed:
            raise UsageError(f"importing {target} printed more than {OUTPUT_BYTES} bytes")
        if received.overflowed:
            raise UsageError(f"the topology in {target} takes more than {CODE_BYTES} bytes when it is pickled")
    while not printed.ended and select.select([printed.fd], [], [], 0)[0] and not printed.overflowed:
        printed.read()
    if printed.data:
        note(bytes(printed.data).decode("utf-8", "replace").removesuffix("\n"))
    if not received.data:
        raise UsageError(f"importing {target} {_ending(child)}; a topology file must run to its end")
    outcome = msgspec.msgpack.decode(bytes(received.data), type=Loaded | Refusal)
    if isinstance(outcome, Refusal):
        error = (HelpShown if outcome.is_help else UsageError)(outcome.message)
        error.add_note(outcome.traceback)
        raise error
    return outcome.code, Config(**outcome.settings)


def _ending(child: subprocess.Popen[bytes]) -> str:
    try:
        status = child.wait(_END_SECS)
    except subprocess.TimeoutExpired:
        return "closed the descriptors of its process"
    return f"ended its process: {describe_status(-status if status < 0 else status << 8)}"


class _Intake:
    """Collects the data from a pipe, up to a limit."""

    def __init__(self, fd: int, limit_bytes: int) -> None:
        self.fd = fd
        self.data = bytearray()
        self.ended = False
        self._limit_bytes = limit_bytes

    @property
    def overflowed(self) -> bool:
        return len(self.data) > self._limit_bytes

    def read(self) -> None:
        piece = os.read(self.fd, _READ_BYTES)
        self.data += piece
        self.ended = not piece


def limit_memory(memory_bytes: int) -> None:
    """Limit the memory of this process and of each of its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
