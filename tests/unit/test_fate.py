"""What becomes of messages, event by event, and the law of it under any events in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.engine.api.component import Spout
from squall.engine.api.failure import EXCEPTION, FAILED, HUNG, TIMEOUT, WORKER_DIED, Failure
from squall.engine.clock import NS_PER_SEC
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Limits, Remembered
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.instruction import (
    BeginTrial,
    Bury,
    Close,
    EndTrial,
    Held,
    Hold,
    Instruction,
    LeaveTrials,
    Letter,
    LookRound,
    Note,
    Refuse,
    Release,
    Replay,
    Steps,
    TellDead,
)
from squall.engine.tracking.open_messages import OpenMessages
from squall.engine.tracking.quarantine import OwnPermit

REFUSED, RAISED, DIED = Failure(FAILED), Failure(EXCEPTION, error="ValueError: no"), Failure(WORKER_DIED)
MINUTE_NS = 60 * NS_PER_SEC


# ---- event by event ----


def said(steps: Steps | Iterable[Instruction], *answers: Any) -> list[Instruction]:
    """Every instruction of an event; `answers` are sent in as they are asked for."""
    told: list[Instruction] = []
    left = list(answers)
    if isinstance(steps, tuple | list):
        return list(steps)
    answer = None
    while True:
        try:
            step = steps.send(answer)  # type: ignore[union-attr]
        except StopIteration:
            assert left == []
            return told
        told.append(step)
        answer = left.pop(0) if isinstance(step, BeginTrial | LookRound | Release) else None


def kinds(steps: Steps | Iterable[Instruction], *answers: Any) -> list[str]:
    return [type(step).__name__ for step in said(steps, *answers)]


def suspect(fate: Fate, message_id: Any = "m") -> None:
    """Two workers died over the message, and its spout has emitted it again."""
    for root in (1, 2):
        said(fate.failed(root, message_id, (1,), DIED, 0))
    assert message_id in fate.attempts.held_back
    fate.hold(message_id, (1,))


def test_a_failure_is_noted_and_the_spout_may_replay() -> None:
    fate = Fate(Limits(max_attempts=3))
    assert said(fate.failed(1, "m", (1,), REFUSED, 0)) == [Note("m", REFUSED), Replay("m", REFUSED)]
    assert kinds(fate.acked(2, "m", (1,), 0)) == []
    assert not fate.attempts.alert


def test_the_last_attempt_leads_to_the_ledger_and_the_spout_is_told_when_it_is_there() -> None:
    fate, failure = Fate(Limits(max_attempts=2)), REFUSED.as_attempt(2)
    said(fate.failed(1, "m", (1,), REFUSED, 0))
    steps = fate.failed(2, "m", (1,), REFUSED, 0)
    assert [next(steps), next(steps)] == [Note("m", failure), Bury("m", (1,), failure)]
    assert not fate.attempts.tries["m"].dead
    assert list(steps) == [TellDead("m", failure)]
    assert fate.attempts.tries["m"].dead


def test_a_worker_that_ends_while_it_buries_has_buried_nothing() -> None:
    fate = Fate(Limits(max_attempts=1))
    steps = fate.failed(1, "m", (1,), REFUSED, 0)
    assert isinstance([next(steps), next(steps)][1], Bury)
    steps.close()
    changes = fate.attempts.take_changes()
    assert changes is not None
    assert not changes.tries["m"].dead


@pytest.mark.parametrize("failure", [DIED, Failure("exception", error="no digit", among=2)])
def test_of_a_group_that_killed_nobody_is_charged_and_each_is_tried_alone(failure: Failure) -> None:
    fate = Fate(Limits(max_crashes=5))
    for message_id in "abc":
        suspect(fate, message_id)
    said(fate.time(0), True, 7)
    said(fate.acked(7, "a", (1,), NS_PER_SEC))
    assert kinds(fate.time(NS_PER_SEC), True, 8, 9) == ["BeginTrial", "Release", "Release"]
    for root, message_id in ((8, "b"), (9, "c")):
        said(fate.failed(root, message_id, (1,), failure, 2 * NS_PER_SEC))
        fate.hold(message_id, (1,))
    assert {tries.trials for tries in fate.attempts.tries.values()} == {0}
    assert kinds(fate.time(3 * NS_PER_SEC), True, 10) == ["BeginTrial", "Release"]


def test_who_kills_alone_on_trial_twice_is_buried_from_the_queue_or_at_the_failure() -> None:
    fate = Fate(Limits(max_crashes=4))
    suspect(fate)
    said(fate.time(0), True, 7)
    assert kinds(fate.failed(7, "m", (1,), DIED, 0)) == ["EndTrial", "LeaveTrials", "Note", "Replay"]
    fate.hold("m", (1,))
    said(fate.time(0), True, 8)
    assert kinds(fate.failed(8, "m", (1,), DIED, 0)) == ["EndTrial", "LeaveTrials", "Note", "Bury", "TellDead"]


def test_a_trial_that_timed_out_ends_when_all_came_round_or_patience_is_over() -> None:
    for turned, later_ns, over in ((False, 0, False), (True, 0, True), (False, 3 * MINUTE_NS, True)):
        fate = Fate(Limits(max_crashes=5))
        suspect(fate)
        suspect(fate, "n")
        said(fate.time(0), True, 7)
        assert kinds(fate.expired(7, "m", (1,), 1, 5)) == ["Note", "Replay"]
        rest = ["EndTrial", "BeginTrial", "Release"] if over else ["BeginTrial"]
        assert kinds(fate.time(5 + later_ns), turned, *([True, 8] if over else [False])) == ["LookRound", *rest]


def test_what_ended_a_worker_after_its_timeout_is_noted_once() -> None:
    fate = Fate(Limits(max_crashes=5))
    said(fate.expired(1, "m", (1,), 1, 0))
    hung = Failure(HUNG)
    assert said(fate.charged_late(1, hung)) == [Note("m", hung)]
    assert said(fate.charged_late(1, hung)) == []


def test_a_letter_goes_out_until_it_is_acked_and_its_spout_hears_nothing() -> None:
    fate, letter = Fate(), Letter("m", (1,), lambda: None)
    fate.given_back(letter)
    assert said(fate.time(0), 7) == [Release(Held("m", (1,), letter))]
    assert said(fate.failed(7, "m", (1,), REFUSED, 0)) == [Note("m", REFUSED), Hold(letter)]
    assert kinds(fate.time(0)) == []
    assert kinds(fate.time(NS_PER_SEC), 8) == ["Release"]
    assert said(fate.acked(8, "m", (1,), 0)) == [Close(letter)]
    assert not fate.attempts.alert


def test_a_permit_that_nobody_went_out_with_is_returned() -> None:
    fate, letter = Fate(), Letter("m", (1,), lambda: None)
    fate.given_back(letter)
    for root in (1, 2):
        said(fate.time(root * MINUTE_NS), root)
        said(fate.failed(root, "m", (1,), DIED, root * MINUTE_NS))
    steps = kinds(fate.time(3 * MINUTE_NS), True, REFUSED)
    assert steps == ["BeginTrial", "Release", "Bury", "Close", "EndTrial", "LeaveTrials"]


def test_what_is_in_the_ledger_is_refused() -> None:
    fate = Fate(Limits(max_attempts=1))
    said(fate.failed(1, "m", (1,), REFUSED, 0))
    second = Fate(Limits(max_attempts=1))
    second.attempts.resume(Remembered(dict(fate.attempts.tries)))
    second.hold("m", (1,))
    assert said(second.time(0)) == [Refuse("m", REFUSED)]


def test_a_stop_iteration_of_the_spouts_is_its_error_and_not_the_end() -> None:
    class Stops(Spout):
        def on_failure(self, message_id: Any, failure: Failure) -> None:
            raise StopIteration

    messages = OpenMessages(
        7, Stops(), lambda: 0, 1, SpoutStats(), lambda *init: None, lambda root: 0, lambda *letter: None
    )
    messages.add(1, "m", (1,), 1, 1)
    with pytest.raises(StopIteration):
        messages.failed(1, REFUSED)


# ---- the law ----


class Task:
    """A spout task of a world: its open trees, its source, and what was said of its messages."""

    def __init__(self, world: World, limits: Limits) -> None:
        self.world = world
        self.limits = limits
        self.fate = Fate(limits)
        self.trees: dict[int, tuple[int, int]] = {}
        """root -> (message id, workers that hold it)."""
        self.expired: dict[int, tuple[int, int, bool]] = {}
        """root -> (message id, workers that held it, whether it was on trial alone)."""
        self.outcomes: dict[int, list[str]] = {}
        """By root. An attempt that is open has none."""
        self.to_replay: list[int] = []
        self.letters: dict[int, Letter] = {}
        """In the ledger, by message id."""
        self.emitted: set[int] = set()
        self.acked: set[int] = set()
        """Messages; as letters, too."""
        self.own: Counter[int] = Counter()
        """Failures that are a message's own, since it was new, acked or given back."""
        self.crashes: Counter[int] = Counter()
        self.trials: Counter[int] = Counter()
        self.doing: int | None = None
        """The attempt that is being answered."""

    @property
    def on_trial(self) -> set[int]:
        return self.fate.attempts.on_trial

    def emit(self, message_id: int) -> None:
        self.emitted.add(message_id)
        if message_id in self.fate.attempts.held_back:
            self.fate.hold(message_id, (message_id,))
        else:
            self.begin(message_id)

    def begin(self, message_id: int) -> int:
        root = self.world.new_root()
        self.trees[root] = message_id, self.world.choose((1, 2, 3))
        self.outcomes[root] = []
        if self.fate.attempts.alert:
            self.fate.emitted(root, message_id, (message_id,))
        return root

    def ack(self, root: int) -> None:
        message_id, _ = self.trees.pop(root)
        self.doing = root
        steps = said(self.fate.acked(root, message_id, (message_id,), self.world.now_ns)) \
            if self.fate.attempts.alert else []
        for step in steps:
            self.carry_out(step)
        if not any(isinstance(step, Close) for step in steps):
            self.outcomes[root].append("acked")
        self.acked.add(message_id)
        self.forget(message_id)
        self.doing = None

    def fail(self, root: int, failure: Failure) -> None:
        message_id, mask = self.trees.pop(root)
        alone = failure.reason == WORKER_DIED and self.fate.attempts.group == (root,)
        self.own[message_id] += failure.reason != WORKER_DIED or alone
        self.crashes[message_id] += failure.reason == EXCEPTION
        self.trials[message_id] += alone
        self.doing, now_ns = root, self.world.now_ns
        if failure.reason == TIMEOUT:
            self.expired[root] = message_id, mask, self.fate.attempts.group == (root,)
            self.run(self.fate.expired(root, message_id, (message_id,), mask, now_ns))
        else:
            self.run(self.fate.failed(root, message_id, (message_id,), failure, now_ns))
        self.doing = None

    def late_crash(self, root: int) -> None:
        self.crashes[self.expired.pop(root)[0]] += 1
        for step in said(self.fate.charged_late(root, Failure(HUNG))):
            self.carry_out(step)

    def give_back(self, message_id: int) -> None:
        self.forget(message_id)
        self.fate.given_back(self.letters.pop(message_id))

    def forget(self, message_id: int) -> None:
        for counter in (self.own, self.crashes, self.trials):
            del counter[message_id]

    def run(self, steps: Steps) -> None:
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            answer = self.carry_out(step)

    def carry_out(self, step: Instruction) -> Any:
        world = self.world
        world.seen[type(step)] += 1
        match step:
            case Replay(message_id, _):
                self.end("replayed")
                self.to_replay.append(message_id)
            case Hold():
                self.end("held")
            case Bury(message_id, values, _):
                assert self.is_over_a_limit(message_id), "a dead letter without limit or trial"
                assert message_id not in self.letters, "buried twice"
                if self.doing is not None:
                    self.end("buried")
                self.letters[message_id] = Letter(message_id, values, lambda: None)
            case TellDead(message_id) | Refuse(message_id):
                assert message_id in self.letters, "told of a letter that is not there"
            case Close():
                if self.doing is not None and "buried" not in self.outcomes[self.doing]:
                    self.end("closed")
            case Release(held):
                root = self.begin(held.message_id)
                if held.message_id in self.fate.attempts.held_back:
                    assert world.permit_of is self, "a suspect without the permit"
                    assert not any(task.on_trial for task in world.tasks), "two trials at once"
                return root
            case BeginTrial() | EndTrial() | LeaveTrials() | LookRound():
                return world.take_permit(self, step)
        return None

    def end(self, outcome: str) -> None:
        assert self.doing is not None
        self.outcomes[self.doing].append(outcome)

    def is_over_a_limit(self, message_id: int) -> bool:
        limits = self.limits
        attempts = limits.max_attempts is not None and self.own[message_id] >= limits.max_attempts
        crashes = limits.max_crashes is not None and (
            self.crashes[message_id] >= limits.max_crashes or self.trials[message_id] >= 2
        )
        return attempts or crashes

    def check(self) -> None:
        for root, outcomes in self.outcomes.items():
            assert len(outcomes) == (root not in self.trees), f"attempt {root}: {outcomes}"


class World:
    """Spout tasks that share a worker's permit, and a clock."""

    def __init__(self, tasks: int, limits: Limits) -> None:
        self.now_ns = 0
        self.permit = OwnPermit()
        self.permit_of: Task | None = None
        self.all_came_round = True
        self._roots = 0
        self._choice = 0
        self.tasks = [Task(self, limits) for _ in range(tasks)]
        self.messages = 0
        self.seen: Counter[type[Instruction]] = Counter()

    def new_root(self) -> int:
        self._roots += 1
        return self._roots

    def choose(self, among: tuple[int, ...]) -> int:
        """Another one each time."""
        self._choice += 1
        return among[self._choice % len(among)]

    def take_permit(self, task: Task, step: Instruction) -> bool | None:
        match step:
            case BeginTrial():
                if self.permit.begin():
                    self.permit_of = task
                    return True
                return False
            case EndTrial():
                assert self.permit_of is task, "another one's permit was returned"
                self.permit_of = None
                self.permit.end()
            case LookRound():
                return self.all_came_round
        return None

    def pass_time(self, ns: int) -> None:
        self.now_ns += ns
        for task in self.tasks:
            task.run(task.fate.time(self.now_ns))
            task.check()

    def kill(self, bit: int) -> None:
        """A worker dies without a word: what it held fails."""
        for task in self.tasks:
            held = [root for root, (_, mask) in task.trees.items() if mask & bit]
            for root, (message_id, mask, alone) in list(task.expired.items()):
                if mask & bit:
                    del task.expired[root]
                    task.trials[message_id] += alone
            task.fate.worker_died(bit, DIED, [task.trees[root][0] for root in held])
            for root in held:
                task.fail(root, DIED)


def pick(among: Iterable[int], number: int) -> int | None:
    found = list(among)
    return found[number % len(found)] if found else None


def emit(world: World, task: Task, number: int) -> None:
    world.messages += 1
    task.emit(world.messages)


def replay(world: World, task: Task, number: int) -> None:
    if task.to_replay:
        task.emit(task.to_replay.pop(number % len(task.to_replay)))


def answer(how: Callable[[Task, int], None]) -> Callable[[World, Task, int], None]:
    def event(world: World, task: Task, number: int) -> None:
        root = pick(task.trees, number)
        if root is not None:
            how(task, root)

    return event


def late_crash(world: World, task: Task, number: int) -> None:
    root = pick(task.expired, number)
    if root is not None:
        task.late_crash(root)


def give_back(world: World, task: Task, number: int) -> None:
    message_id = pick(task.letters, number)
    if message_id is not None:
        task.give_back(message_id)


def come_round(world: World, task: Task, number: int) -> None:
    world.all_came_round = not world.all_came_round


EVENTS: dict[str, Callable[[World, Task, int], None]] = {
    "emit": emit,
    "replay": replay,
    "ack": answer(Task.ack),
    "refuse": answer(lambda task, root: task.fail(root, REFUSED)),
    "raise": answer(lambda task, root: task.fail(root, RAISED)),
    "time out": answer(lambda task, root: task.fail(root, Failure(TIMEOUT))),
    "late crash": late_crash,
    "give back": give_back,
    "kill": lambda world, task, number: world.kill(1 + number % 2),
    "come round": come_round,
    "wait": lambda world, task, number: world.pass_time(number * NS_PER_SEC),
}
LIMITS = st.builds(Limits, st.sampled_from((None, 1, 3)), st.sampled_from((None, 1, 3, 5)))


@settings(max_examples=300)
@given(
    st.integers(1, 2), LIMITS,
    st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.integers(0, 1), st.integers(0, 30)), max_size=120),
)
def test_every_attempt_has_one_end_and_nothing_is_held_for_ever(
    tasks: int, limits: Limits, events: list[tuple[str, int, int]]
) -> None:
    live(World(tasks, limits), events)


WEIGHTS = {"emit": 3, "replay": 8, "ack": 5, "time out": 2, "kill": 3, "wait": 3}


def test_the_same_in_long_lives_in_which_every_instruction_is_given(seed: int) -> None:
    rng, seen = random.Random(seed), Counter[type[Instruction]]()
    names, weights = list(EVENTS), [WEIGHTS.get(name, 1) for name in EVENTS]
    for _ in range(100):
        world = World(rng.randint(1, 2), Limits(rng.choice((None, 3, 6)), rng.choice((None, 3, 5))))
        drawn = rng.choices(names, weights, k=400)
        live(world, [(name, rng.randrange(2), rng.randrange(31)) for name in drawn])
        seen += world.seen
    assert set(seen) == {*get_args(Instruction)} - {Refuse}


def live(world: World, events: Iterable[tuple[str, int, int]]) -> None:
    for name, index, number in events:
        task = world.tasks[index % len(world.tasks)]
        EVENTS[name](world, task, number)
        task.check()
        world.pass_time(0)
    end_well(world)
    for task in world.tasks:
        assert task.emitted == task.acked | task.letters.keys()
        assert not task.fate.attempts.on_trial
    assert world.permit_of is None


def end_well(world: World) -> None:
    """From now on every worker is well and every tree is acked: all must come to an end."""
    world.all_came_round = False  # patience alone must do
    for _ in range(20 + 4 * world.messages):
        for task in world.tasks:
            while task.to_replay:
                replay(world, task, 0)
        world.pass_time(3 * MINUTE_NS)
        for task in world.tasks:
            for root in list(task.trees):
                task.ack(root)
            task.check()
        if not any(task.trees or task.to_replay or holds(task) for task in world.tasks):
            return
    raise AssertionError(f"still held: {[holds(task) for task in world.tasks]}")


def holds(task: Task) -> list[Any]:
    quarantine = task.fate.quarantine
    return [*quarantine.held, *quarantine.waiting, *quarantine.letters.values()]
