"""Real worker cores and data planes, codec and frames in one process: any interleaving, deaths, broken links, timeouts.

Guarantees: what happens in a case depends on its seed alone (but for tuple ids, which are the product's). A case breaks
things, heals them, and must then end as promised; the ledger knows what truly happened.

Relies on: `Turn.turn` doing what `scheduler.worker.Worker.run` does in a turn, in the same order.
"""

from __future__ import annotations

import random
from typing import Any

from squall.engine.assemble import Assembler, Surroundings
from squall.engine.clock import ManualClock
from squall.engine.config import Config
from squall.engine.ids import EdgeIds
from squall.engine.peers import Peers
from squall.engine.plan import ExecutorPlan, Plan
from squall.engine.topology import ACKER_COMPONENT, Topology
from squall.ipc.ack_lanes import AckLanes, lanes_words
from squall.ipc.data_plane import DataPlane
from squall.ipc.frame import opening_of
from squall.ipc.shim import LinkRule, LinkShim
from tests.sim.invariants import (
    ACKED_EARLY,
    ANSWERED_TWICE,
    ID_REPEATED,
    MESSAGE_LOST,
    STATE_LEFT,
    WAITED_FOR_TIMEOUT,
    InvariantBrokenError,
    unwrapped,
)
from tests.sim.wire import Wire
from tests.unit.ledger import Ledger, topology_of
from tests.unit.net import scatter
from tests.unit.rig import copy_component

OPENING = opening_of(b"k" * 32, "sim-1-00000000", 1)
TIMEOUT_SECS = 10
MESSAGES = 24
_FAULTY_TURNS, _HEALED_TURNS = 250, 3000
_TIMEOUTS = 6
_LOSSY = ("drop", "delay", "reorder", "corrupt", "truncate")


class TellingLedger(Ledger):
    """A ledger that knows whom it told of what."""

    def __init__(self, messages: int, rng: random.Random, failing: float) -> None:
        super().__init__(messages, rng, failing)
        self.told: set[Any] = set()

    def tell(self, message_id: Any) -> None:
        if message_id in self.told:
            raise InvariantBrokenError(ANSWERED_TWICE, f"attempt {message_id}")
        self.told.add(message_id)
        if self.too_early:
            raise InvariantBrokenError(ACKED_EARLY, f"attempts {self.too_early}")


class RecordedEdgeIds(EdgeIds):
    """Edge ids, each of which must be new to the whole cluster."""

    __slots__ = ("_drawn",)

    def __init__(self, drawn: set[int]) -> None:
        super().__init__()
        self._drawn = drawn

    def refill(self) -> None:
        super().refill()
        if not self._drawn.isdisjoint(self.pool):
            raise InvariantBrokenError(ID_REPEATED, "edge ids that another worker or incarnation drew")
        self._drawn.update(self.pool)


class Turn:
    """One incarnation of a worker: its core and its data plane."""

    def __init__(self, cluster: Cluster, me: int, incarnation: int) -> None:
        self.cluster = cluster
        self.me = me
        self.incarnation = incarnation
        self.seen: list[tuple[int, bool]] = [(0, False)] * cluster.plan.n_workers
        self.rotates_at_ns = 0
        self.peers = Peers(cluster.plan.n_workers, me)
        self.peers.update(me, incarnation, True)
        self.shim = LinkShim(cluster.rules, cluster.rng.getrandbits(32))
        self.plane = DataPlane(
            cluster.wire, OPENING, me, incarnation, cluster.path(me, incarnation), 4096, 0, self.shim,  # type: ignore[arg-type]
            cluster.lanes_of(me, incarnation),
        )
        around = Surroundings(
            "sim", cluster.plan.worker_names[me], incarnation, cluster.clock.now_ns, None, cluster.report,
            cluster.give_up, copy=copy_component, deterministic=True,
        )
        self.core = Assembler(cluster.topology, cluster.plan, cluster.config, me, self.peers, around).build()
        self.core.pressure.limit_bytes = cluster.limit_bytes
        cluster.full[me] = frozenset()
        self.core.tracking.tell = self.plane.tell_acks
        self.core.tracking.hear = self._hear
        for bolt in self.core.bolts:
            bolt._slices = True
        self._record_ids()
        self.follow()
        self.core.set_active(True)

    def _record_ids(self) -> None:
        outbox = self.core.outbox
        outbox.edges = RecordedEdgeIds(self.cluster.edges)
        outbox.pool = outbox.edges.pool
        for _, task in self.core.spout_tasks.values():
            add = task.pending.add
            task.collector._pending = _Recorder(task.pending, add, self.cluster)  # type: ignore[assignment]

    def follow(self) -> None:
        """As `Worker._follow_peers`."""
        for slot, now in enumerate(self.cluster.board):
            if slot == self.me or now == self.seen[slot]:
                continue
            self.seen[slot] = now
            incarnation, alive = now
            if not alive or incarnation != self.peers.incarnation(slot):
                self.plane.disconnect(slot)
                self.plane.fence(slot, incarnation if alive else incarnation + 1)
            self.core.peer_changed(slot, incarnation, alive)
            if alive and not self.plane.is_connected(slot):
                self.plane.connect(slot, incarnation, self.cluster.path(slot, incarnation))

    def turn(self, most: int) -> bool:
        """As `Worker.run` turns."""
        self.plane.set_awake(True)
        for bolt in self.core.bolt_tasks.values():
            bolt.slice_rows = self.cluster.rng.choice((1, 2, 1000))
        came = self._take_in(most)
        worked = self.core.step(lambda: self._take_in(self.cluster.rng.randrange(3))) or came
        worked = self._send() or worked
        assert self.core.pressure.held_bytes >= 0
        self.cluster.full[self.me] = frozenset(self.core.pressure.full)
        if self.core.pressure.stalled:
            self.plane.park()
        self.plane.send_credit(at_least=1)
        now_ns = self.cluster.clock.now_ns()
        if now_ns >= self.rotates_at_ns:
            self.rotates_at_ns = now_ns + TIMEOUT_SECS * 1_000_000_000
            self.core.tracking.rotate()
            self.plane.probe()
        self.plane.confirm_acks()
        self.plane.set_awake(self.cluster.rng.random() < 0.8)
        return worked

    def _send(self) -> bool:
        """As `Worker._send`; whether there was anything to send."""
        core, plane, sent = self.core, self.plane, False
        full = self.cluster.full
        core.others_are_full(frozenset().union(*(full[slot] for slot in range(len(full)) if slot != self.me)))
        for slot in core.close_parcels():
            while plane.has_credit(slot) and core.has_parcel(slot):
                parcel = core.take_parcel(slot)
                too_big = plane.send(slot, parcel, 2 * core.frame_bytes)
                if too_big:
                    core.put_back(slot, parcel, too_big)
                else:
                    sent = True
        core.measure_waiting()
        others = (node for node in self.cluster.nodes if node is not None and node is not self)
        blocked = core.keeps_back or any(map(core.has_parcel, range(self.cluster.plan.n_workers)))
        core.congested = blocked or any(node.core.pressure.congested for node in others)
        return sent

    def _hear(self) -> int:
        return self.plane.take_acks(self.core.tracking.take_acks)

    def _take_in(self, most: int) -> bool:
        """As `Worker._take_in`."""
        frames, acks = self.plane.receive(self.core.receive, most), self._hear()
        self.follow()
        if frames:
            self.core.attend()
        elif acks:
            self.core.settle()
        return frames + acks > 0


class _Recorder:
    """Sees every root before the pending table does."""

    def __init__(self, pending: Any, add: Any, cluster: Cluster) -> None:
        self._pending = pending
        self._add = add
        self._cluster = cluster

    def __len__(self) -> int:
        return len(self._pending)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pending, name)

    def add(self, root: int, message_id: Any, values: Any, xor: int, workers: int) -> None:
        if root in self._cluster.roots:
            raise InvariantBrokenError(ID_REPEATED, f"root {root:x} of attempt {message_id}")
        self._cluster.roots.add(root)
        self._add(root, message_id, values, xor, workers)


def _chain(topology: Topology) -> Plan:
    """Spouts and their acker, what they feed, and all the rest: a worker each."""
    executors: list[list[ExecutorPlan]] = [[], [], []]
    task = 1
    for component, _, tasks, _ in sorted(topology.layout(1)):
        link = {"numbers": 0, ACKER_COMPONENT: 0, "fan": 1}.get(component, 2)
        executors[link].append(ExecutorPlan(component, task, task + tasks - 1))
        task += tasks
    return Plan(executors, [f"node-1:{6700 + worker}" for worker in range(3)])


class Cluster:
    """The workers of one case."""

    def __init__(
        self, seed: int, actions: tuple[str, ...] = (), deaths: bool = True, chained: bool = False,
        faulty_turns: int = _FAULTY_TURNS, made: tuple[Topology, Plan] | None = None,
    ) -> None:
        """`actions` are the link faults to draw from; with none, links are whole. `chained`: no worker executes what
        the one before has emitted, and all acks go to the first. `made`: a topology of one's own, and where it runs,
        for who looks by himself how it ends."""
        self.rng = rng = random.Random(seed)
        self.faulty_turns = faulty_turns
        self.ledger = TellingLedger(MESSAGES, rng, failing=rng.choice((0, 0.1)))
        self.topology = topology_of(self.ledger)
        self.plan = scatter(self.topology, rng, n_workers=rng.choice((2, 3)), ackers=rng.choice((1, 2, 3)))
        if chained:
            self.plan = _chain(self.topology)
        if made is not None:
            self.topology, self.plan = made
        self.config = Config(
            seed=rng.getrandbits(30), max_spout_pending=rng.choice((3, 10, None)), message_timeout_secs=TIMEOUT_SECS
        )
        self.clock = ManualClock()
        self.wire = Wire(rng)
        self.rules = [LinkRule(action, rng.choice((0.02, 0.1, 0.3))) for action in actions if rng.random() < 0.7]
        self.lossy = any(rule.action in _LOSSY for rule in self.rules)
        self.deaths = deaths
        self.board = [(1, True)] * self.plan.n_workers
        self.lanes = memoryview(bytearray(8 * lanes_words(self.plan.n_workers))).cast("Q")
        self.uses_lanes = rng.random() < 0.7
        self.limit_bytes = rng.choice((1024, 4096, 8 << 20))
        """So much the queue of a task may hold."""
        self.full: list[frozenset[int]] = [frozenset()] * self.plan.n_workers
        """Tasks whose queues are full, as the worker of each slot said last."""
        self.roots: set[int] = set()
        self.edges: set[int] = set()
        self.nodes: list[Turn | None] = [None] * self.plan.n_workers
        for me in range(self.plan.n_workers):
            self.nodes[me] = Turn(self, me, 1)

    def path(self, slot: int, incarnation: int) -> str:
        return f"/nowhere/{slot}.{incarnation}"

    def lanes_of(self, slot: int, incarnation: int) -> AckLanes | None:
        return AckLanes(self.lanes[:], self.plan.n_workers, slot, incarnation) if self.uses_lanes else None

    def report(self, component: str, task: int, text: str) -> None:
        raise AssertionError(f"{component}[{task}] reported {text}")

    def give_up(self, *letter: Any) -> None:
        raise AssertionError(f"no limit of attempts was set: {letter}")

    def turn(self) -> None:
        self.clock.advance(self.rng.random() * 0.001)
        node = self.rng.choice(self.nodes)
        if node is not None:
            node.turn(self.rng.randrange(8))

    def kill(self, slot: int) -> None:
        node = self.nodes[slot]
        if node is None:
            return
        self.nodes[slot] = None
        incarnation, _ = self.board[slot]
        self.board[slot] = (incarnation, False)
        self.wire.queues.pop(f"ipc://{self.path(slot, incarnation)}", None)
        for socket, _, _ in node.plane._outbound.values():
            self.wire.lose_tail(socket)  # type: ignore[arg-type]

    def restart(self, slot: int) -> None:
        if self.nodes[slot] is None:
            incarnation = self.board[slot][0] + 1
            node = Turn(self, slot, incarnation)
            self.board[slot] = (incarnation, True)
            self.nodes[slot] = node

    @unwrapped()
    def run(self) -> None:
        """One case. Raises InvariantBrokenError."""
        for _ in range(self.faulty_turns):
            self.turn()
            if self.deaths and self.rng.random() < 0.02:
                slot = self.rng.randrange(self.plan.n_workers)
                (self.restart if self.nodes[slot] is None else self.kill)(slot)
            if self.rng.random() < 0.01:
                self.clock.advance(TIMEOUT_SECS)
        for slot, node in enumerate(self.nodes):
            self.restart(slot)
            if node is not None:
                node.shim.rules = []
        for node in self._living:
            node.shim.rules = []
            node.shim._held.clear()
        self._end()

    @property
    def _living(self) -> list[Turn]:
        return [node for node in self.nodes if node is not None]

    def _end(self) -> None:
        for number in range(_TIMEOUTS):
            if self._settle():
                break
            if not self.lossy:
                raise InvariantBrokenError(WAITED_FOR_TIMEOUT, str(self))
            self.clock.advance(TIMEOUT_SECS + number)
        if len(self.ledger.acked) != MESSAGES:
            raise InvariantBrokenError(MESSAGE_LOST, str(self))
        for _ in range(4):
            self.clock.advance(TIMEOUT_SECS)
            for node in self._living:
                node.turn(1000)
            self._settle()
        left = self._left()
        if left:
            raise InvariantBrokenError(STATE_LEFT, ", ".join(left))

    def _settle(self) -> bool:
        """Turn until everything is acked and quiet; False if it is not within many turns."""
        for turn in range(_HEALED_TURNS):
            if turn % 16 == 0 and len(self.ledger.acked) == MESSAGES and self._quiet:
                return True
            self.turn()
        return False

    @property
    def _quiet(self) -> bool:
        told = any(node.plane.has_acks for node in self._living)
        return not (told or self.wire.under_way()) and all(node.core.quiet for node in self._living)

    def _left(self) -> list[str]:
        left: list[tuple[int, str]] = []
        for node in self._living:
            left += [(len(task.pending), "pending trees") for _, task in node.core.spout_tasks.values()]
            for acker in node.core.ackers.values():
                left += [(len(acker), "trees in an acker"), (acker.early_count, "early messages")]
            left += [(link.under_way_bytes, "bytes under way") for _, link, _ in node.plane._outbound.values()]
            left.append((node.core.pressure.held_bytes, "bytes in queues"))
        return [f"{count} {what}" for count, what in left if count]

    def __str__(self) -> str:
        rules = ", ".join(f"{rule.action}:{rule.probability}" for rule in self.rules) or "none"
        waiting = sorted(set(range(MESSAGES)) - self.ledger.acked)
        return f"{self.plan.n_workers} workers, link faults {rules}, not acked: {waiting}"


ALL_FAULTS = ("drop", "duplicate", "delay", "reorder", "corrupt", "truncate")


def run_case(seed: int) -> None:
    """A third of the cases with whole links, one with repeats only, one with everything; a fifth of each in a chain."""
    actions: tuple[tuple[str, ...], ...] = ((), ("duplicate",), ALL_FAULTS)
    Cluster(seed, actions[seed % 3], chained=seed % 5 == 0).run()
