"""One worker of a simulated cluster: a real worker core and turn, whose links are queues and whose board is a list.

Guarantees: frames go through the codec of real links, so a value that cannot be sent is refused here too. As on real
links, a worker drops frames from an incarnation that it knows to be dead, and frames for its own earlier incarnations.

A recorder notes every tuple that an emit accepted, once, in the order of the emits, with any number of subscribers, and
the messages that failed. Nothing in the topology changes by that.

Relies on: the cluster for the board, the queues and the clock; collectors that place their tuples through `StreamOut`
where it shows no way past it. Thread: the test's, which runs all workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall.engine.api.columns import Columns
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.hooks import SpoutAckInfo, SpoutFailInfo, TaskHook
from squall.engine.api.plan import Plan
from squall.engine.api.stream import DEFAULT_STREAM, Stream
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.core.assemble import Assembler
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.transport import Deliver, NoPeers, NoTransport, PeerChange
from squall.engine.core.turn import Turn
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.emitter import UNNAMED, Emitter, Route, Start, StreamOut
from squall.engine.flow.groupings import Values
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.parcel import Parcel
from squall.engine.foreign.identity import key_of
from squall.engine.state.records.lineage import RESULTS, has_identity
from squall.engine.tracking.peers import Peers
from squall.ipc.codec import decode, encode

if TYPE_CHECKING:
    from squall.testing.simulated import SimulatedCluster


@dataclass(frozen=True)
class Frame:
    """A parcel from one worker to another, on its way."""

    source: int
    """Index of the sending worker."""
    sender: int
    """Incarnation of the sender."""
    receiver: int
    """Incarnation of the intended receiver."""
    data: bytes
    buffers: list[bytes]


class SimulatedWorker(NoTransport, NoPeers):
    """One incarnation of a worker, which is its own transport and its own view of the board. Frames for a dead worker
    wait for its replacement."""

    def __init__(self, cluster: SimulatedCluster, me: int) -> None:
        self._cluster = cluster
        self._me = me
        self._incarnation = cluster.board[me][0]
        self._peers = Peers(cluster.plan.n_workers, me)
        self._peers.update(me, self._incarnation, True)
        self._fence = [0] * cluster.plan.n_workers
        self._heard: set[int] = set()
        self._seen = [(0, False)] * cluster.plan.n_workers
        self.core: WorkerCore = _RecordingAssembler(cluster, me, self._incarnation, self._peers).build()
        self._turn = Turn(self.core, self, self, cluster.config, cluster.clock.now_ns)
        self.follow()

    def follow(self) -> None:
        """React to changes of the peers on the board."""
        self._turn.follow_peers()

    def turn(self) -> bool:
        """Run one turn. Returns whether anything happened. Raises TaskCrashed."""
        return self._turn.run()

    @property
    def rotates_at_ns(self) -> int:
        """Time of its ackers' next rotation."""
        return self._turn.rotates_at_ns

    # ---- the transport ----

    def is_connected(self, worker: int) -> bool:
        return True

    def fence(self, worker: int, incarnation: int) -> None:
        self._fence[worker] = max(incarnation, self._fence[worker])

    def receive(self, deliver: Deliver, most: int) -> int:
        came = 0
        for source in range(self._cluster.plan.n_workers):
            link = self._cluster.links[source, self._me]
            while link:
                came += 1
                frame = link.popleft()
                if frame.receiver == self._incarnation and frame.sender >= self._fence[frame.source]:
                    self._heard.add(frame.source)
                    deliver(decode(frame.data, frame.buffers), _nothing)
        return came

    def take_heard(self) -> set[int]:
        heard, self._heard = self._heard, set()
        return heard

    @property
    def caught_up(self) -> set[int]:
        return {worker for worker in range(self._cluster.plan.n_workers) if not self._cluster.links[self._me, worker]}

    @property
    def is_under_way(self) -> bool:
        return any(self._cluster.links[self._me, worker] for worker in range(self._cluster.plan.n_workers))

    def has_credit(self, worker: int) -> bool:
        return True

    def send(self, worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        data, buffers = encode(parcel)
        receiver = self._peers.incarnation(worker) + (0 if self._peers.is_alive(worker) else 1)
        # Copied, so that the sender's later changes do not reach the receiver.
        copies = [bytes(buffer) for buffer in buffers]
        self._cluster.links[self._me, worker].append(Frame(self._me, self._incarnation, receiver, data, copies))
        return 0

    # ---- the peers' states ----

    def changed_peers(self) -> list[PeerChange]:
        before, self._seen = self._seen, list(self._cluster.board)
        pairs = enumerate(zip(before, self._seen, strict=True))
        return [(worker, *now, now[1]) for worker, (was, now) in pairs if now != was and worker != self._me]

    def at_rest(self) -> bool:
        return not any(self._cluster.links.values())


class _RecordingAssembler(Assembler):
    """Builds a core whose emits are recorded, if there is a recorder."""

    def __init__(self, cluster: SimulatedCluster, me: int, incarnation: int, peers: Peers) -> None:
        super().__init__(cluster.topology, cluster.plan, cluster.config, me, peers, Surroundings(
            cluster.name, cluster.plan.worker_names[me], incarnation, cluster.clock.now_ns, cluster.state_root,
            lambda *error: cluster.errors.append(error), lambda *letter: cluster.dead_letters.append(letter),
            wall_ns=cluster.clock.wall_ns, copy=cluster.copy, threads=False, timed=False,
            interrupts=True, least_block=4,
        ))
        self._recorder = cluster.recorder

    def _emitter(self, spec: ComponentSpec, task: int, outbox: Outbox, context: TopologyContext) -> Emitter:
        emitter = super()._emitter(spec, task, outbox, context)
        if self._recorder is not None:
            streams: dict[str, Any] = emitter.streams
            for name, stream in emitter.streams.items():
                streams[name] = _RecordedStream(stream, self._recorder.of(spec.id, name, stream.shape))
            if spec.is_spout:
                context.add_hook(self._recorder)
        return emitter


def _nothing() -> None:
    """Give no credit back: simulated links need none."""


def stream_key(component: str, stream: str) -> str:
    """Return the name of a stream: its component, as users call it, for the default stream, else "component/stream"."""
    component = component.removesuffix(RESULTS)
    return component if stream == DEFAULT_STREAM else f"{component}/{stream}"


class Recorder(TaskHook):
    """The emitted tuples, by stream and without identities, and the messages that failed, which a hook of each spout
    task tells."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        self.emitted: dict[str, list[Values]] = {
            stream_key(spec.id, stream): [] for spec in topology.components.values() for stream in spec.outputs
        }
        self.failed: dict[Any, tuple[str, Any, Failure]] = {}
        """Task and message -> (spout, message id, failure), until the message is acked."""
        self._plan = plan

    def of(self, component: str, stream: str, shape: Stream) -> Callable[[Values], None]:
        """Return the function to call with each tuple of one stream."""
        append = self.emitted[stream_key(component, stream)].append
        return (lambda values: append(values[:-1])) if has_identity(shape.fields) else append

    def spout_ack(self, info: SpoutAckInfo) -> None:
        self.failed.pop((info.task_id, key_of(info.message_id)), None)

    def spout_fail(self, info: SpoutFailInfo) -> None:
        spout = self._plan.task_component[info.task_id]
        self.failed[info.task_id, key_of(info.message_id)] = spout, info.message_id, info.failure


class _RecordedStream(StreamOut):
    """A stream that passes each tuple to a recorder."""

    __slots__ = ("_record",)

    def __init__(self, stream: StreamOut, record: Callable[[Values], None]) -> None:
        super().__init__(stream.who, stream.shape, stream.routes, stream.outbox)
        self._record = record

    def append(self, values: Values, key: object, start: Start, task: Any = UNNAMED) -> list[int]:
        tasks = super().append(values, key, start, task)
        self._record(values)
        return tasks

    def append_batch(self, rows: Columns, *given: Any) -> None:
        super().append_batch(rows, *given)
        for row in rows:
            self._record(row)

    def only_route(self) -> Route | None:
        """Return None: tuples that go past `append` would not be recorded."""
        return None
