"""The forking parent: a process that has imported everything and only forks workers and their spares, and the frames
that it exchanges with its supervisor.

Guarantees
    * It has one thread (checked before every fork) and no ZeroMQ context, so a child begins in a sane process.
    * It never imports user code: a worker's imports and crashes stay in that worker.
    * A worker whose topology has a spare that is loaded is that spare; any other is forked.
    * It reaps every child, and reports the exit status before it answers any later fork.
    * When its supervisor dies it ends, and its spares with it; its workers live on.
    * Frames arrive whole and in order. Each is a 4-byte little-endian length and a msgpack struct.

Relies on: being started by `scheduler.supervisor.forking_parent`, with one end of a blocking socket pair. The owner of
an end may limit how long the kernel waits for the peer (`LIMITED_WAIT`): a peer that is stopped then raises OSError
instead of holding up this process.

Forked from its supervisor, or run as ``python -m squall.scheduler.forking.parent --node NODE --fd N``.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import importlib
import logging
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import UMASK
from squall.scheduler.common import process
from squall.scheduler.common.daemon import log_to_stderr
from squall.scheduler.common.logs import ROTATE_BYTES
from squall.scheduler.common.messages import TopologyRecord, Wire, WorkerBoot
from squall.scheduler.common.role import MODULES, Role, RoleKind, show_role
from squall.scheduler.common.standstill import DUMP_SIGNAL
from squall.scheduler.forking.child import fork, run_forked
from squall.scheduler.forking.spare import Spare, SpareOutput

PUBLIC_MODULE = "squall"
PRELOADED_MODULES = ("zmq", "msgspec", "cloudpickle", "squall.scheduler.worker.main", PUBLIC_MODULE)
PRELOADED_PACKAGES = ("squall.engine", "squall.ipc")

log = logging.getLogger(__name__)

# ---- frames ----

_LENGTH_BYTES = 4
WAIT_SECS = 5
LIMITED_WAIT = struct.pack("ll", WAIT_SECS, 0)
"""Value of SO_SNDTIMEO and SO_RCVTIMEO."""


class ForkRequest(Wire, frozen=True, tag=True):
    """Supervisor to forking parent. `entry` is "module:function"; the function takes the boot, returns an exit code."""

    boot: WorkerBoot
    entry: str


class KeepSpares(Wire, frozen=True, tag=True):
    """Supervisor to forking parent: have a spare of each of these topologies, and no other. `loader` is
    "module:function"; the function takes run directory and topology, and returns what `entry` takes after the boot."""

    run_dir: str
    node: str
    topologies: list[TopologyRecord]
    loader: str


class SpareEnded(Wire, frozen=True, tag=True):
    """A spare is no more. No reason: it became a worker, or was not loaded yet when a worker was asked for."""

    topology_id: str
    reason: str


class Forked(Wire, frozen=True, tag=True):
    """The answer. Pid and start time name the child for good; it may have ended since."""

    port: int
    incarnation: int
    pid: int
    started_ticks: int


class ForkRefused(Wire, frozen=True, tag=True):
    """The answer if there is no child."""

    port: int
    incarnation: int
    error: str


class ChildExited(Wire, frozen=True, tag=True):
    """A child was reaped. `status` is as from `os.waitpid`."""

    pid: int
    status: int


Answer = Forked | ForkRefused | ChildExited | SpareEnded
ForkingParentFrame = ForkRequest | KeepSpares | Answer

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ForkingParentFrame)


def send(sock: socket.socket, frame: ForkingParentFrame) -> None:
    """Send a frame; waits while the peer does not read. OSError if the peer has gone."""
    body = _ENCODER.encode(frame)
    sock.sendall(len(body).to_bytes(_LENGTH_BYTES, "little") + body)


def receive(sock: socket.socket) -> ForkingParentFrame:
    """The next frame; waits for it. EOFError or OSError if the peer has gone, DecodeError if it sent something else."""
    size = int.from_bytes(_exactly(sock, _LENGTH_BYTES), "little")
    frame: ForkingParentFrame = _DECODER.decode(_exactly(sock, size))
    return frame


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        # A signal may cut short what MSG_WAITALL has begun.
        more = sock.recv(count - len(data), socket.MSG_WAITALL)
        if not more:
            raise EOFError("the other end of the forking parent's socket has gone")
        data += more
    return data


# ---- the process ----


def preload() -> None:
    """Import what workers need, then freeze it for the garbage collector, so that forks share its memory.

    All public names are loaded, because topology files import them, if only for their main program: those imports take
    up to 30 ms, half of the time to replace a worker.
    """
    names = list(PRELOADED_MODULES)
    for package in PRELOADED_PACKAGES:
        path = importlib.import_module(package).__path__
        names += (module.name for module in pkgutil.walk_packages(path, f"{package}."))
    for name in names:
        _try_to_load(name, importlib.import_module)
    public = sys.modules[PUBLIC_MODULE]
    for name in public.__all__:
        _try_to_load(name, partial(getattr, public))
    gc.collect()
    gc.freeze()


def _try_to_load(name: str, load: Callable[[str], Any]) -> None:
    try:
        load(name)
    except Exception:
        # A worker that needs the module will report the error to its supervisor; forking works without.
        log.exception("%s cannot be preloaded", name)


class ForkingLoop:
    """The loop: fork on request, reap on SIGCHLD, end with the supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._spares: dict[str, Spare] = {}
        """By the id of their topology."""

    def run(self) -> None:
        """Run until the supervisor closes its end. Thread: main."""
        wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Python writes to the wake-up descriptor only for signals that have a handler in Python.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                readable, _, _ = select.select([wake_in, self._socket.fileno()], [], [])
                if wake_in in readable:
                    os.read(wake_in, 4096)
                    self._reap()
                if self._socket.fileno() in readable:
                    frame = receive(self._socket)
                    if isinstance(frame, ForkRequest):
                        self._fork(frame)
                    elif isinstance(frame, KeepSpares):
                        self._keep_spares(frame)

    def _keep_spares(self, order: KeepSpares) -> None:
        self._reap()
        wanted = {topology.id: topology for topology in order.topologies}
        for topology_id in self._spares.keys() - wanted.keys():
            self._spares.pop(topology_id).kill()
        for topology_id in wanted.keys() - self._spares.keys():
            try:
                self._spares[topology_id] = Spare(partial(_load, order, wanted[topology_id]), _take_over)
            except (ClusterError, OSError) as error:
                send(self._socket, SpareEnded(topology_id, str(error)))

    def _fork(self, request: ForkRequest) -> None:
        boot = request.boot
        self._reap()
        spare = self._spares.pop(boot.topology.id, None)
        if spare is not None:
            send(self._socket, SpareEnded(boot.topology.id, ""))
        try:
            taken = spare is not None and spare.give(_ENCODER.encode(request))
            pid = spare.pid if spare is not None and taken else fork(lambda: run_child(boot, request.entry))
        except ClusterError as error:
            send(self._socket, ForkRefused(boot.port, boot.incarnation, str(error)))
            return
        # It cannot have been reaped yet, so it has a start time.
        send(self._socket, Forked(boot.port, boot.incarnation, pid, process.start_time_ticks(pid)))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._tell_end(*ended)

    def _tell_end(self, pid: int, status: int) -> None:
        for topology_id, spare in self._spares.items():
            if spare.pid == pid:
                del self._spares[topology_id]
                # Users' code may have started processes.
                process.send_signal_to_group(pid, signal.SIGKILL)
                send(self._socket, SpareEnded(topology_id, spare.why_ended(status)))
                return
        send(self._socket, ChildExited(pid, status))


def run_child(boot: WorkerBoot, entry: str) -> NoReturn:
    """Be the worker. Does not return."""
    rotate_bytes = boot.topology.conf.get("log_rotate_bytes", ROTATE_BYTES)
    run_forked(lambda: _run_entry(entry, boot), boot.log_path, rotate_bytes=rotate_bytes)


def _run_entry(entry: str, boot: WorkerBoot) -> object:
    _settle_in(Role(RoleKind.WORKER, f"{boot.node}:{boot.port}", boot.topology.name))
    return _call(entry, boot)


def _load(order: KeepSpares, topology: TopologyRecord) -> object:
    """The first part of a spare's work."""
    _settle_in(Role(RoleKind.SPARE, order.node))
    loaded = _call(order.loader, order.run_dir, topology)
    show_role(Role(RoleKind.SPARE, order.node, topology.name))
    return loaded


def _take_over(loaded: object, output: SpareOutput, word: bytes) -> object:
    """The rest of it: be the worker."""
    request = msgspec.msgpack.decode(word, type=ForkRequest)
    boot = request.boot
    output.move_to(boot.log_path, boot.topology.conf.get("log_rotate_bytes", ROTATE_BYTES))
    show_role(Role(RoleKind.WORKER, f"{boot.node}:{boot.port}", boot.topology.name))
    return _call(request.entry, boot, loaded)


def _settle_in(role: Role) -> None:
    show_role(role)
    # SIGINT ends a worker as any other signal does. So a KeyboardInterrupt in a worker was raised by users' code.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A crash, as DUMP_SIGNAL does, writes the stacks of all threads to the worker's log.
    faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL)


def _call(entry: str, *arguments: object) -> object:
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)(*arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    prog = f"python -m {MODULES[RoleKind.FORKING_PARENT]}"
    parser = argparse.ArgumentParser(prog=prog, description="forks workers for a supervisor")
    parser.add_argument("--node", required=True, help="name of the supervisor's node")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the socket to the supervisor")
    options = parser.parse_args(arguments)
    show_role(Role(RoleKind.FORKING_PARENT, options.node))
    log_to_stderr()
    os.umask(UMASK)
    with socket.socket(fileno=options.fd) as sock:
        preload()
        ForkingLoop(sock).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
