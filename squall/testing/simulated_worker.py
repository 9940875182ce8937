"""One worker of a simulated cluster: a real worker core whose links are queues and whose board is a list.

Guarantees: what it sends goes through the codec of real links, so a value that cannot travel is refused here too; it
takes in nothing from an incarnation that it knows to be dead, and frames for an earlier incarnation of its own are
dropped, as links do.

Relies on the cluster for the board, the queues and the clock. One thread drives all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from squall.engine.assemble import Assembler, Surroundings
from squall.engine.config import Config
from squall.engine.core import WorkerCore
from squall.engine.emitter import Emitter
from squall.engine.failure import Failure
from squall.engine.outbox import Outbox
from squall.engine.peers import Peers
from squall.engine.plan import Plan
from squall.engine.topology import ComponentSpec, Topology
from squall.ipc.codec import decode, encode
from squall.testing.recording import Recorder, record_streams


@dataclass(frozen=True)
class Frame:
    """What one worker sent to another in one go."""

    sender: int
    """Incarnation that sent it."""
    receiver: int
    """Incarnation that it is for."""
    data: bytes
    buffers: list[bytes]


class Wiring:
    """What the workers of one simulated cluster share."""

    def __init__(self, topology: Topology, plan: Plan, config: Config, name: str, now_ns: Callable[[], int]) -> None:
        self.topology = topology
        self.plan = plan
        self.config = config
        self.name = name
        self.now_ns = now_ns
        self.board: list[tuple[int, bool]] = [(1, True)] * plan.n_workers
        """(incarnation, alive) of each worker."""
        self.links: dict[tuple[int, int], deque[Frame]] = {
            (source, target): deque() for source in range(plan.n_workers) for target in range(plan.n_workers)
        }
        self.errors: list[tuple[str, int, str]] = []
        self.dead_letters: list[tuple[str, int, Any, Any, Failure]] = []

    def report_error(self, component: str, task: int, text: str) -> None:
        self.errors.append((component, task, text))

    def dead_letter(self, component: str, task: int, message_id: Any, values: Any, failure: Failure) -> None:
        self.dead_letters.append((component, task, message_id, values, failure))


class SimulatedWorker:
    """One incarnation of a worker."""

    def __init__(
        self, wiring: Wiring, me: int, copy: Callable[[ComponentSpec], Any], state_root: str | None,
        recorder: Recorder | None,
    ) -> None:
        self._wiring = wiring
        self.me = me
        self.incarnation = wiring.board[me][0]
        n_workers = wiring.plan.n_workers
        self._seen: list[tuple[int, bool]] = [(0, False)] * n_workers
        self._fence = [0] * n_workers
        self.peers = Peers(n_workers, me)
        self.peers.update(me, self.incarnation, True)
        around = Surroundings(
            wiring.name, wiring.plan.worker_names[me], self.incarnation, wiring.now_ns, state_root,
            wiring.report_error, wiring.dead_letter, copy=copy, deterministic=True, interrupts=True,
        )
        self.core: WorkerCore = _RecordingAssembler(wiring, me, self.peers, around, recorder).build()
        self.follow()

    def follow(self) -> None:
        """Act on what the board says of the others."""
        for slot, now in enumerate(self._wiring.board):
            if slot != self.me and now != self._seen[slot]:
                self._seen[slot] = now
                incarnation, alive = now
                self._fence[slot] = incarnation if alive else incarnation + 1
                self.core.peer_changed(slot, incarnation, alive)

    def receive(self, source: int, count: int | None = None) -> bool:
        """Take in `count` frames (by default all) from one worker; whether there were any."""
        link = self._wiring.links[source, self.me]
        count = len(link) if count is None else count
        for _ in range(count):
            frame = link.popleft()
            if frame.receiver == self.incarnation and frame.sender >= self._fence[source]:
                self.core.receive(decode(frame.data, frame.buffers), _nothing)
        return count > 0

    def sendable(self) -> list[int]:
        """The workers that there is something for and that can be reached."""
        return [slot for slot in self.core.close_parcels() if self.peers.is_alive(slot)]

    def send(self, slot: int) -> bool:
        """Send what there is for one worker; whether there was anything."""
        parcel = self.core.take_parcel(slot)
        if not parcel:
            return False
        data, buffers = encode(parcel)
        # Copied: what the sender changes afterwards does not reach the receiver.
        frame = Frame(self.incarnation, self.peers.incarnation(slot), data, [bytes(buffer) for buffer in buffers])
        self._wiring.links[self.me, slot].append(frame)
        return True

    def turn(self) -> bool:
        """Take in everything, work, send everything; whether anything happened. Raises TaskCrashed."""
        worked = False
        for source in range(self._wiring.plan.n_workers):
            worked |= self.receive(source)
        # The board after the frames: who sent a frame may have acted upon what the board said by then.
        self.follow()
        worked |= self.core.step()
        for slot in self.sendable():
            worked |= self.send(slot)
        return worked


class _RecordingAssembler(Assembler):
    """Builds a core whose emits are written down, if there is a recorder."""

    def __init__(
        self, wiring: Wiring, me: int, peers: Peers, around: Surroundings, recorder: Recorder | None
    ) -> None:
        super().__init__(wiring.topology, wiring.plan, wiring.config, me, peers, around)
        self._recorder = recorder

    def _emitter(self, spec: ComponentSpec, task: int, outbox: Outbox, context: Any) -> Emitter:
        emitter = super()._emitter(spec, task, outbox, context)
        if self._recorder is not None:
            record_streams(emitter, self._recorder)
        return emitter


def _nothing() -> None:
    """There is no credit to return."""


