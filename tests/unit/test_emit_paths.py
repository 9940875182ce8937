"""Every fast path does what the plain path does, to the last edge; and which path a task is given."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from squall import FailedTuple, TaskHook, TopologyBuilder
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.stream import ACKER_COMPONENT
from squall.engine.core.blocking import Handover
from squall.engine.core.surroundings import PRODUCT, Parts
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.batch import Batch
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.tracking.acker import Acker
from tests.unit import rig
from tests.unit.lab import batch_of
from tests.unit.rig import ONE_TARGET, Does, DoesBasic, Feeder, keeps

STREAMS = {"default": ("value", "more"), "other": ("value",)}
GROUPINGS = {**rig.GROUPINGS, "two fields": lambda bolt, source: bolt.fields_grouping(source, "value", "more")}
KINDS = ("spout", "basic", "plain")


class RaisesWhenHashed:
    def __hash__(self) -> int:
        raise ValueError("no hash today")


@dataclass(frozen=True, eq=False)
class Call:
    """One emit, of a spout under `message_id`, of a bolt anchored as `anchors` says."""

    values: Any
    stream: str = "default"
    message_id: Any = None
    anchors: str = "this"
    by_name: bool = False
    """The stream is given by its name where it is the default one."""
    misplaced: tuple[Any, ...] = ()
    """Given by position where a name is needed."""


@dataclass(frozen=True, eq=False)
class Row:
    """What a bolt does with one tuple."""

    calls: list[Call]
    ends: str = "ack"


@dataclass(frozen=True, eq=False)
class Case:
    kind: str
    grouping: str
    targets: int
    calls: list[Call]
    """Of a spout."""
    runs: list[tuple[int, bool, list[Row]]]
    """Of a bolt: (number of the root, 0 = untracked; whether it belongs to another tree too; its tuples)."""
    hooks: bool = False
    ackers: int = 1
    debug: bool = False
    seconds: bool = False
    """Another bolt has subscribed to the stream as well."""
    hashed: bool = False
    """Text is grouped by the interpreter's own hash, as in worker processes."""
    gathers: bool = True
    """The spout's emits are entered together, as in a call of `next_tuple`."""
    held_back_after: int | None = None
    """After so many emits of the spout, some messages are not to go out at once."""


class Seen(TaskHook):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def emit(self, info: Any) -> None:
        self.log.append(tuple(info))

    def bolt_ack(self, info: Any) -> None:
        self.log.append(("ack", info.tup.values))

    def bolt_fail(self, info: Any) -> None:
        self.log.append(("fail", info.tup.values))


class Told(Acker):
    """Writes down the trees that it is told of."""

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def init(self, root: int, xor: int, spout_task: int, mask: int = 0) -> None:
        self.told.append((root, xor, spout_task, mask))
        super().init(root, xor, spout_task, mask)

    def init_block(self, *given: Any) -> None:
        self.told.append(given)
        super().init_block(*given)


class Script:
    """Does what a case says, and writes down what came of it."""

    def __init__(self, case: Case) -> None:
        self.rows = [row for _, _, rows in case.runs for row in rows]
        self.came: list[Any] = []
        self.kept: list[Any] = []
        self.done: list[Any] = []

    def call(self, emit: Callable[[], Any]) -> None:
        try:
            self.came.append(emit())
        except BaseException as error:  # whatever a value's own code raises
            self.came.append((type(error), str(error)))

    def emits(self, call: Call, emit: Any, **named: Any) -> None:
        if call.stream != "default" or call.by_name:
            named["stream"] = "".join(call.stream)
        self.call(lambda: emit(call.values, *call.misplaced, **named))

    def basic(self, bolt: Any, tup: Any, collector: Any) -> None:
        row = self.rows.pop(0)
        for call in row.calls:
            self.emits(call, collector.emit)
        if row.ends in ("fail", "raise"):
            raise FailedTuple("as told") if row.ends == "fail" else KeyError("as told")

    def plain(self, bolt: Any, tup: Any) -> None:
        row, collector = self.rows.pop(0), bolt.collector
        for call in row.calls:
            anchors = {
                "this": tup, "no": (), "one of a list": [tup], "all that is kept": [*self.kept, tup],
                "done": self.done[-1] if self.done else None, "wrong": 5,
            }[call.anchors]
            self.emits(call, collector.emit, anchors=anchors)
        if row.ends == "keep":
            self.kept.append(tup)
        elif row.ends == "raise":
            raise KeyError("as told")
        else:
            self.call(lambda: (collector.ack if row.ends == "ack" else collector.fail)(tup))
            self.done.append(tup)
            for kept in self.kept if len(self.kept) > 2 else ():
                self.call(partial(collector.ack, kept))
                self.done.append(kept)
                self.kept = []


def core_of(case: Case, parts: Parts, script: Script, hook: Any = None) -> WorkerCore:
    """The worker of the component whose emits are looked at; of its targets, every other one is elsewhere."""
    builder = TopologyBuilder()
    user: Any = Feeder(STREAMS)
    builder.set_spout("spout", user)
    if case.kind != "spout":
        user = DoesBasic(script.basic, STREAMS) if case.kind == "basic" else Does(script.plain, STREAMS)
        builder.set_bolt("bolt", user).shuffle_grouping("spout")
    user.watched_by = [hook] if hook else []
    source = "spout" if case.kind == "spout" else "bolt"
    GROUPINGS[case.grouping](builder.set_bolt("sink", Does(keeps), case.targets, case.targets), source)
    if case.seconds:
        builder.set_bolt("second", Does(keeps)).global_grouping(source)
    builder.set_bolt("side", Does(keeps)).all_grouping(source, "other")
    executors: list[list[ExecutorPlan]] = [[], []]
    task = 1
    for component, _, tasks, _ in sorted(builder.build().layout(case.ackers)):
        for index in range(tasks):
            there = component != ACKER_COMPONENT and component not in ("spout", "bolt") and index % 2
            executors[bool(there)].append(ExecutorPlan(component, task, task))
            task += 1
    around = {
        "parts": replace(parts, draw=random.Random(1).randbytes, acker=Told),
        "text_hash": hash if case.hashed else stable_hash, "report_error": lambda *error: script.came.append(error),
    }
    plan, settings = Plan(executors, ["node-1:6700", "node-1:6701"]), {"debug": case.debug, "on_error": "fail"}
    return rig.Rig(builder, around=around, plan=plan, seed=1, ackers=case.ackers, **settings).core


def shown(batch: Batch) -> list[Any]:
    names = ("source", "stream", "target", "rows", "starts", "roots", "edges", "others")
    return [getattr(batch, name) for name in names]


def outcome(case: Case, parts: Parts) -> list[Any]:
    """Everything that can be seen of a case from outside the collector."""
    script, hook = Script(case), Seen() if case.hooks else None
    core = core_of(case, parts, script, hook)
    seen: list[Any] = [script.came, hook and hook.log]
    if case.kind == "spout":
        [spout] = core.spout_tasks.values()
        spout.collector.gathers = case.gathers
        for call in case.calls:
            if len(script.came) == case.held_back_after:
                spout.pending.attempts.held_back.update(key_of(number) for number in (1, 2))
            script.emits(call, spout.user.collector.emit, message_id=call.message_id)
        spout.collector.put_new()
        seen += [spout.collector.emitted, spout.collector.untracked]
        seen += [spout.pending.trees, list(spout.pending.table)]
        seen += [spout.user.acked, spout.user.failures, list(spout.stats.account)]
    elif script.rows:
        [executor] = [bolt for bolt in core.bolts if bolt.tasks[0].component == "bolt"]
        [task] = executor.tasks
        runs = [(number << 16, number and 1000 + index, len(rows)) for index, (number, _, rows) in enumerate(case.runs)]
        batch = batch_of([(0, 0)] * len(script.rows), runs, task.task, core.plan.tasks_of("spout")[0])
        more = {index: ((9 << 16, 77),) for index, (number, other, _) in enumerate(case.runs) if number and other}
        batch.others = more or None
        while executor.process(task, batch):
            pass
        seen += [task.stats.acked, task.stats.failed, task.stats.executed, task.stats.untracked_executed]
    outbox = core.outbox
    # As if a thread had said it all: a batch is counted when the core has it.
    said = Handover(outbox, [], None)
    seen += [[shown(batch) for batch in said.here], [shown(batch) for batch in said.there]]
    # A path that is wrong may take a task that is elsewhere for one that is here: seen by now.
    said.here = [batch for batch in said.here if batch.target in core.bolt_tasks]
    core.absorb(said)
    core.refresh_gauges()
    seen += [outbox.take_acks(), outbox.take_fails(), {task: stats.emitted for task, stats in core.stats.items()}]
    for acker in core.ackers.values():
        assert isinstance(acker, Told)
        seen.append(acker.told)
    return [*seen, outbox.edges.next()]


class Word(str):
    """Text of a class of its own, which equals plain text."""

    __slots__ = ()


ODD_KEYS = [[1], {}, {"a"}, RaisesWhenHashed(), object(), lambda: None, float("nan"), Lock()]
PLAIN_KEYS = ["a", "b", "c", Word("c"), "\u00e4", 1, 1.0, True, None, -0.0, b"a", ("a", 1)]
KEYS = st.sampled_from(PLAIN_KEYS) | st.sampled_from(range(len(ODD_KEYS))).map(lambda index: ODD_KEYS[index])
OTHERS = st.integers(0, 2) | st.integers(0, 2) | KEYS
ROWS = st.tuples(KEYS, OTHERS) | st.tuples(KEYS, OTHERS).map(list)
WRONG = st.sampled_from(["ab", 5, None, (), ("a",), ("a", 1, 2), {"a": 1}, {"a", "b"}])
ANCHORS = st.sampled_from(["this"] * 4 + ["no", "one of a list", "all that is kept", "done", "wrong"])


def calls(values: Any) -> Any:
    return st.builds(
        Call, values, message_id=st.none() | st.integers(0, 9) | st.just([1]), anchors=ANCHORS, by_name=st.booleans(),
        stream=st.just("default"), misplaced=st.sampled_from([()] * 9 + [(None,), ("other",), (5,)]),
    )


EMITS = (
    calls(ROWS) | calls(ROWS) | calls(WRONG)
    | st.builds(Call, KEYS.map(lambda key: (key,)), st.sampled_from(["other", "nowhere"]), st.integers(0, 9), ANCHORS)
)
RUNS = st.lists(
    st.tuples(
        st.integers(0, 3), st.booleans(),
        st.lists(
            st.builds(
                Row, st.lists(EMITS, max_size=4), st.sampled_from(["ack"] * 4 + ["fail", "keep", "keep", "raise"])
            ),
            min_size=1, max_size=3,
        ),
    ),
    max_size=4,
)
CASES = st.builds(
    Case, st.sampled_from(KINDS), st.sampled_from(list(GROUPINGS)), st.integers(1, 3), st.lists(EMITS, max_size=8),
    RUNS, hooks=st.booleans(), ackers=st.sampled_from([1, 1, 1, 0]), debug=st.sampled_from([False] * 4 + [True]),
    seconds=st.sampled_from([False] * 3 + [True]), hashed=st.booleans(), gathers=st.booleans(),
    held_back_after=st.none() | st.integers(0, 3),
)
PLAIN = replace(PRODUCT, fast_emit=lambda collector: None)
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=150, deadline=None, suppress_health_check=QUICK)
@given(CASES)
def test_a_fast_path_does_what_the_plain_one_does(case: Case) -> None:
    assert outcome(case, PRODUCT) == outcome(case, PLAIN)


CALLS = [*(Call((key, 1), message_id=5 + number) for number, key in enumerate("abab")), Call(("a",), "other", 9)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_so_it_does_where_emits_share_a_run_and_go_to_two_streams(kind: str, grouping: str) -> None:
    case = Case(kind, grouping, 2, CALLS, [(1, False, [Row(CALLS)] * 2)])
    assert outcome(case, PRODUCT) == outcome(case, PLAIN)


# ---- which path is taken ----


def is_fast(case: Case) -> bool:
    core = core_of(case, PRODUCT, Script(case))
    if case.kind == "spout":
        [spout] = core.spout_tasks.values()
        collector: Any = spout.collector
    else:
        [executor] = [bolt for bolt in core.bolts if bolt.tasks[0].component == "bolt"]
        collector = executor.tasks[0].collector
    own = vars(collector).keys() & {"emit", "emit_direct"}
    assert own <= {"emit"}
    return bool(own)


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_to_one_task_goes_fast_and_everything_else_the_plain_way(kind: str) -> None:
    assert {name for name in GROUPINGS if is_fast(Case(kind, name, 2, [], []))} == {*ONE_TARGET, "two fields"}
    assert not is_fast(Case(kind, "fields", 2, [], [], seconds=True))
    assert not is_fast(Case(kind, "fields", 2, [], [], debug=True))
