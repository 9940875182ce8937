"""Real turns, worker cores and data planes, codec and frames in one process: any interleaving, deaths, broken links,
timeouts, sleep.

Guarantees: what happens in a case depends on its seed alone (but for tuple ids, which are the product's). A case breaks
things, heals them, and must then end as promised; the ledger knows what truly happened.

What is not the product's: ZeroMQ (`tests.sim.wire`), the status board, and time, which passes a little whenever
somebody looks at the clock. As a worker process does, a worker here turns, publishes when its turn says so, and sleeps
as long as that says, or until a frame is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.failure import FAILED
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.topology import ACKER_COMPONENT, Topology
from squall.engine.clock import NS_PER_MS, ManualClock
from squall.engine.core.assemble import Assembler
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.transport import Deliver, NoPeers, PeerChange
from squall.engine.flow.ids import EdgeIds
from squall.engine.flow.member_columns import Words, words_of
from squall.engine.tracking.attempts import Changes, Remembered
from squall.engine.tracking.peers import Peers
from squall.ipc.ack_rings import AckRings, rings_words
from squall.ipc.data_plane import DataPlane, PlaneAddress, PlaneLimits, PlaneParts
from squall.ipc.frame import opening_of
from squall.ipc.shim import LinkRule, LinkShim
from tests.held import early
from tests.sim.invariants import (
    ACKED_EARLY,
    ANSWERED_TWICE,
    EXECUTED_UNWRITTEN,
    FAILED_WITHOUT_CAUSE,
    ID_REPEATED,
    SLEPT_ON_NEWS,
    STATE_LEFT,
    WAITED_FOR_TIMEOUT,
    InvariantBrokenError,
    unwrapped,
)
from tests.sim.ledger import IN_BATCHES, Ledger, topology_of
from tests.sim.parts import PARTS, Parts
from tests.sim.wire import Context, Wire
from tests.unit.rig import copy_component

OPENING = opening_of("sim-1-00000000", 1)
TIMEOUT_SECS = 10
MESSAGES = 24
_NO_LIMIT = 1_000
"""Deaths that a message may be under way at: it is to blame for none, so it must not be given up."""
_FAULTY_TURNS, _HEALED_TURNS = 250, 6000
"""The latter take some 3 s: time to ask for what was lost, none for a timeout."""
_LATE = (0.0, 0.1, 0.5)
"""How likely it is that a worker that looks for frames does not find one that is under way."""
_LONG_NS = 1_500_000
"""Longer than a worker lets an answer wait, and two of them longer than it goes without a look around."""


def place(topology: Topology, n_workers: int, worker_for: Callable[[str], int], ackers: int = 1) -> Plan:
    """Each executor on the worker that is chosen for its component; a worker may get none."""
    executors: list[list[ExecutorPlan]] = [[] for _ in range(n_workers)]
    task = 1
    for component, _, tasks, n_executors in sorted(topology.layout(ackers)):
        for index in range(n_executors):
            size = tasks // n_executors + (index < tasks % n_executors)
            executors[worker_for(component)].append(ExecutorPlan(component, task, task + size - 1))
            task += size
    return Plan(executors, [f"node-1:{6700 + worker}" for worker in range(n_workers)])


LINKS = {"numbers": 0, ACKER_COMPONENT: 0, "fan": 1}
"""A chain of three workers: spouts and their acker, what they feed, and all the rest."""


class TellingLedger(Ledger):
    """A ledger that knows whom it told of what."""

    def __init__(self, messages: int, rng: random.Random, failing: float) -> None:
        super().__init__(messages, rng, failing)
        self.told: set[Any] = set()
        self.writes = rng.random() < 0.5
        """Spouts write down what they emit."""
        self.written: set[Any] = set()
        """Messages that a spout's journal has."""

    def executes(self, message_id: Any) -> None:
        if self.writes and message_id not in self.written:
            raise InvariantBrokenError(EXECUTED_UNWRITTEN, f"attempt {message_id}")

    def fails(self, message_id: Any, reason: str) -> None:
        if reason == FAILED and message_id not in self.refused:
            raise InvariantBrokenError(FAILED_WITHOUT_CAUSE, f"attempt {message_id}, which no bolt failed")

    def tell(self, message_id: Any) -> None:
        if message_id in self.told:
            raise InvariantBrokenError(ANSWERED_TWICE, f"attempt {message_id}")
        self.told.add(message_id)
        if self.too_early:
            raise InvariantBrokenError(ACKED_EARLY, f"attempts {self.too_early}")


def same_bytes(count: int) -> bytes:
    """A generator that every worker seeds alike, as a `random.Random` that was inherited through fork would be."""
    return bytes(1 + index % 251 for index in range(count))


class RecordedEdgeIds(EdgeIds):
    """Edge ids of another source, each of which must be new to the whole cluster."""

    __slots__ = ("_drawn", "_source")

    def __init__(self, source: EdgeIds, drawn: set[int]) -> None:
        super().__init__()
        self._source = source
        self._drawn = drawn

    def refill(self) -> None:
        self._source.refill()
        new = self._source.pool
        self._note(new)
        self.pool.extend(new)
        new.clear()

    def take_column(self, count: int) -> Words:
        words = self._source.take_column(count)
        self._note(words_of(words, count))
        return words

    def _note(self, new: Sequence[int]) -> None:
        if not self._drawn.isdisjoint(new) or len(set(new)) < len(new):
            raise InvariantBrokenError(ID_REPEATED, "edge ids that another worker or incarnation drew")
        self._drawn.update(new)


class Journal:
    """What a spout task has written down, as far as the proof is concerned."""

    def __init__(self, ledger: TellingLedger) -> None:
        self._ledger = ledger

    def load(self) -> Remembered:
        # Only a spout task whose incarnation before died without a word writes down all it emits.
        return Remembered(unclean=self._ledger.writes)

    def append(self, changes: Changes, snapshot: Callable[[], Changes]) -> None:
        for _, messages in changes.out:
            self._ledger.written.update(messages)

    def end(self) -> None: ...


class Plane(DataPlane):
    """The real one. While a worker takes in frames, and just before it is known to sleep, others go on."""

    cluster: Cluster

    def receive(self, deliver: Deliver, most: int) -> int:
        self.cluster.meanwhile(self.me)
        return super().receive(deliver, most)

    def set_awake(self, awake: bool) -> None:
        if not awake:
            self.cluster.meanwhile(self.me)
        super().set_awake(awake)


class Board(NoPeers):
    """What the cluster's board says of the others."""

    def __init__(self, cluster: Cluster, me: int) -> None:
        self._cluster = cluster
        self._me = me
        self._seen: list[tuple[int, bool]] = [(0, False)] * cluster.plan.n_workers

    def changed_peers(self) -> list[PeerChange]:
        before, self._seen = self._seen, list(self._cluster.board)
        pairs = enumerate(zip(before, self._seen, strict=True))
        return [(worker, *now, now[1]) for worker, (was, now) in pairs if now != was and worker != self._me]

    def connecting(self, worker: int, incarnation: int) -> str:
        return self._cluster.path(worker, incarnation)

    @property
    def _others(self) -> list[Worker]:
        return [node for node in self._cluster.nodes if node is not None and node.me != self._me]

    def others_congested(self) -> bool:
        return any(node.congested for node in self._others)

    def full_elsewhere(self) -> frozenset[int]:
        return frozenset().union(*(full for worker, full in enumerate(self._cluster.full) if worker != self._me))

    def at_rest(self) -> bool:
        return all(node.core.quiet for node in self._others)

    def publish_full(self) -> None:
        node = self._cluster.nodes[self._me]
        if node is not None:
            full = self._cluster.full[self._me] = frozenset(node.core.pressure.full)
            node.congested = node.congested or bool(full)


class Worker:
    """One incarnation of a worker: its core, its data plane and its turn. What `scheduler.worker.loop.Worker` is to
    them."""

    def __init__(self, cluster: Cluster, me: int, incarnation: int) -> None:
        self.cluster = cluster
        self.me = me
        self.congested = False
        """As it has published."""
        self.sleeps_until_ns: int | None = None
        peers = Peers(cluster.plan.n_workers, me)
        peers.update(me, incarnation, True)
        self.shim = LinkShim(cluster.rules, cluster.rng.getrandbits(32))
        self.context = Context(cluster.wire)
        self.plane = cluster.new_plane(
            self.context,  # type: ignore[arg-type]
            PlaneAddress(OPENING, me, incarnation, cluster.path(me, incarnation)), PlaneLimits(4096, 0),
            cluster.rings_of(me, incarnation), self.shim,
            PlaneParts(sender=cluster.parts.sender, receiver=cluster.parts.receiver),
        )
        self.plane.cluster = cluster
        around = Surroundings(
            "sim", cluster.plan.worker_names[me], incarnation, cluster.now_ns, None, cluster.report,
            cluster.give_up, copy=copy_component, threads=False,
            journal=lambda component, index: Journal(cluster.ledger),
            parts=cluster.core_parts, least_block=4,
        )
        self.core = Assembler(cluster.topology, cluster.plan, cluster.config, me, peers, around).build()
        self.core.pressure.limit_bytes = cluster.limit_bytes
        cluster.full[me] = frozenset()
        self._turn = cluster.parts.turn(
            self.core, self.plane, Board(cluster, me), cluster.config, cluster.now_ns, sending=cluster.parts.sending
        )
        self._turn.follow_peers()
        self._turn.get_up()
        self.core.set_active(True)

    def look(self) -> bool:
        """Whether it is awake, or something wakes it now."""
        if self.sleeps_until_ns is None:
            return True
        has_input = self.cluster.wire.has_input(self.plane.inbound)  # type: ignore[arg-type]
        if self.plane.has_acks and not has_input and not self.cluster.rules:
            raise InvariantBrokenError(SLEPT_ON_NEWS, f"worker {self.me} was told acks and sleeps")
        if not has_input and self.cluster.clock.now_ns() < self.sleeps_until_ns:
            return False
        self.wake()
        return True

    def wake(self) -> None:
        """Its wait is over."""
        self._turn.get_up()
        self.sleeps_until_ns = None

    def turn(self) -> None:
        """As `Worker.run`: turn, publish if it is time to, wait if there is nothing to do."""
        turn = self._turn
        for bolt in self.core.bolt_tasks.values():
            bolt.slice_rows = self.cluster.rng.choice((1, 2, 1000))
        worked = turn.run()
        assert self.core.pressure.held_bytes >= 0
        if turn.shows:
            self.congested = turn.blocked or self.core.pressure.congested
            self.plane.confirm()
        elif worked:
            return
        wait_ms = turn.lie_down()
        if wait_ms:
            self.sleeps_until_ns = self.cluster.clock.now_ns() + wait_ms * NS_PER_MS
        else:
            turn.get_up()


class Cluster:
    """The workers of one case."""

    def __init__(
        self, seed: int, actions: tuple[str, ...] = (), deaths: bool = True, chained: bool = False,
        in_batches: Collection[str] = (), faulty_turns: int = _FAULTY_TURNS,
        made: tuple[Topology, Plan] | None = None,
        parts: Parts = PARTS, new_plane: Callable[..., Plane] = Plane,
    ) -> None:
        """`actions` are the link faults to draw from; with none, links are whole. `chained`: no worker executes what
        the one before has emitted, and all acks go to the first. `in_batches`: see `topology_of`. `made`: a topology of
        one's own, and where it runs, for who looks by himself how it ends."""
        self.rng = rng = random.Random(seed)
        self.parts = parts
        self.core_parts = replace(
            parts.core,
            # A generator of its own: which acker a tree has depends on its id, and a case must repeat exactly.
            draw=random.Random(f"ids of {seed}").randbytes if parts.ids_per_worker else same_bytes,
            edge_ids=lambda draw: RecordedEdgeIds(parts.core.edge_ids(draw), self.edges),
            root_ids=lambda acker, draw: map(self.new_root, parts.core.root_ids(acker, draw)),
        )
        self.new_plane = new_plane
        self.faulty_turns = faulty_turns
        self.ledger = TellingLedger(MESSAGES, rng, failing=rng.choice((0, 0.1)))
        self.topology = topology_of(self.ledger, in_batches)
        n_workers, ackers = rng.choice((2, 3)), rng.choice((1, 2, 3))
        self.plan = place(self.topology, n_workers, lambda component: rng.randrange(n_workers), ackers)
        if chained:
            self.plan = place(self.topology, 3, lambda component: LINKS.get(component, 2))
        if made is not None:
            self.topology, self.plan = made
        self.config = Config(
            seed=rng.getrandbits(30), max_spout_pending=rng.choice((3, 10, "adaptive")),
            message_timeout_secs=TIMEOUT_SECS, max_crashes=_NO_LIMIT,
        )
        self.clock = ManualClock()
        self.wire = Wire(rng)
        self.rules = [LinkRule(action, rng.choice((0.02, 0.1, 0.3))) for action in actions if rng.random() < 0.7]
        self.deaths = deaths
        self.board = [(1, True)] * self.plan.n_workers
        self.rings = memoryview(bytearray(8 * rings_words(self.plan.n_workers))).cast("Q")
        self.uses_rings = rng.random() < 0.7
        self.limit_bytes = rng.choice((1024, 4096, 8 << 20))
        """So much the queue of a task may hold."""
        self.full: list[frozenset[int]] = [frozenset()] * self.plan.n_workers
        """Tasks whose queues are full, as each worker said last."""
        self.roots: set[int] = set()
        self.edges: set[int] = set()
        self._interleaves = False
        self._breaks = True
        self._death_rate = rng.choice((0.02, 0.1))
        self.nodes: list[Worker | None] = [None] * self.plan.n_workers
        for me in range(self.plan.n_workers):
            self.nodes[me] = Worker(self, me, 1)

    def path(self, worker: int, incarnation: int) -> str:
        return f"/nowhere/{worker}.{incarnation}"

    def rings_of(self, worker: int, incarnation: int) -> AckRings:
        """Those of a cluster without rings are seen by nobody, so all others seem asleep."""
        words = self.rings[:] if self.uses_rings else memoryview(bytearray(self.rings.nbytes)).cast("Q")
        return self.parts.rings(words, self.plan.n_workers, worker, incarnation)

    def new_root(self, root: int) -> int:
        """A root is drawn, which must be new to the whole cluster."""
        if root in self.roots:
            raise InvariantBrokenError(ID_REPEATED, f"root {root:x}")
        self.roots.add(root)
        return root

    def report(self, component: str, task: int, text: str) -> None:
        raise AssertionError(f"{component}[{task}] reported {text}")

    def give_up(self, *letter: Any) -> None:
        raise AssertionError(f"no limit of attempts was set: {letter}")

    def now_ns(self) -> int:
        """What a worker reads off the clock: now and then something has taken its time."""
        if self.rng.random() < 0.05:
            self.clock.advance_ns(self.rng.randrange(_LONG_NS))
        return self.clock.now_ns()

    def turn(self) -> None:
        """A worker that happens to be scheduled takes a turn, or sleeps on."""
        self.clock.advance(self.rng.random() * 0.001)
        self._let(self.rng.randrange(self.plan.n_workers))

    def _let(self, worker: int) -> None:
        node = self.nodes[worker]
        if node is not None and node.look():
            self.wire.late = self.rng.choice(_LATE)
            node.turn()

    def _break(self, worker: int) -> None:
        """Kill a worker or bring one back, now and then; some are back before anybody looks."""
        if self.deaths and self._breaks and self.rng.random() < self._death_rate:
            if self.nodes[worker] is not None:
                self.kill(worker)
            if self.rng.random() < 0.5:
                self.restart(worker)

    def meanwhile(self, me: int) -> None:
        """What others may do in the middle of a turn of one worker."""
        if self._interleaves or self.rng.random() < 0.5:
            return
        self._interleaves = True
        for _ in range(self.rng.randrange(4)):
            worker = self.rng.randrange(self.plan.n_workers)
            if worker != me:
                self._break(worker)
                self._let(worker)
        self._interleaves = False

    def kill(self, worker: int) -> None:
        node = self.nodes[worker]
        if node is None:
            return
        self.nodes[worker] = None
        incarnation, _ = self.board[worker]
        self.board[worker] = (incarnation, False)
        self.wire.queues.pop(f"ipc://{self.path(worker, incarnation)}", None)
        node.context.die()

    def restart(self, worker: int) -> None:
        if self.nodes[worker] is None:
            incarnation = self.board[worker][0] + 1
            node = Worker(self, worker, incarnation)
            self.board[worker] = (incarnation, True)
            self.nodes[worker] = node

    @unwrapped()
    def run(self) -> None:
        """One case. Raises InvariantBrokenError."""
        for _ in range(self.faulty_turns):
            self.turn()
            self._break(self.rng.randrange(self.plan.n_workers))
            if self.rng.random() < 0.01:
                self.clock.advance(TIMEOUT_SECS)
        self._breaks = False
        for worker in range(self.plan.n_workers):
            self.restart(worker)
        for node in self.living:
            node.shim.replace([], seed=0)  # what it held back is lost
        self._end()

    @property
    def living(self) -> list[Worker]:
        return [node for node in self.nodes if node is not None]

    def _end(self) -> None:
        if not self._settle():
            raise InvariantBrokenError(WAITED_FOR_TIMEOUT, str(self))
        for _ in range(4):
            self.clock.advance(TIMEOUT_SECS)
            self.wire.late = 0.0
            for node in self.living:
                node.wake()
                node.turn()
            self._settle()
        left = self._left()
        if left:
            raise InvariantBrokenError(STATE_LEFT, ", ".join(left))

    def _settle(self) -> bool:
        """Turn until everything is acked and quiet; False if it is not within many turns."""
        for turn in range(_HEALED_TURNS):
            if turn % 16 == 0 and len(self.ledger.acked) == MESSAGES and self.quiet:
                return True
            self.turn()
        return False

    @property
    def quiet(self) -> bool:
        told = any(node.plane.has_acks for node in self.living)
        return not (told or self.wire.under_way()) and all(node.core.quiet for node in self.living)

    def _left(self) -> list[str]:
        left: list[tuple[int, str]] = []
        for node in self.living:
            left += [(len(task.pending), "pending trees") for task in node.core.spout_tasks.values()]
            for acker in node.core.ackers.values():
                left += [(len(acker), "trees in an acker"), (early(acker), "early messages")]
            left.append((len([*node.plane.positions()]) - len(node.plane.caught_up), "links with something under way"))
            left.append((node.core.pressure.held_bytes, "bytes in queues"))
        return [f"{count} {what}" for count, what in left if count]

    def __str__(self) -> str:
        rules = ", ".join(f"{rule.action}:{rule.probability}" for rule in self.rules) or "none"
        waiting = sorted(set(range(MESSAGES)) - self.ledger.acked)
        return f"{self.plan.n_workers} workers, link faults {rules}, not acked: {waiting}"


ALL_FAULTS = ("drop", "duplicate", "delay", "reorder", "flip", "cut", "garble")


def run_case(seed: int) -> None:
    """A third of the cases with whole links, one with repeats only, one with everything; a fifth of each in a chain;
    half of them in batches, wholly or in part."""
    actions: tuple[tuple[str, ...], ...] = ((), ("duplicate",), ALL_FAULTS)
    Cluster(seed, actions[seed % 3], chained=seed % 5 == 0, in_batches=batches_of(seed) if seed % 2 else ()).run()


def batches_of(seed: int) -> tuple[str, ...]:
    """The components that take batches in one case: all of them in half of the cases, else any."""
    rng = random.Random(seed)
    return IN_BATCHES if rng.random() < 0.5 else tuple(name for name in IN_BATCHES if rng.random() < 0.5)
