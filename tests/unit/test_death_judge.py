"""When a slot is started again and when it is given up, and that each death counts once."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from squall.scheduler.common.messages import (
    Assignment,
    SlotChanged,
    SlotRef,
    TopologyRecord,
)
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions, StartAgain
from squall.scheduler.nimbus import topology_life
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.supervisor.death_judge import (
    CRASHES_WITHOUT_AN_ACK,
    CRASHES_WITHOUT_ANY_ACK,
    HOPELESS_DEATHS,
    HOPELESS_ERRORS,
    DeathJudge,
    DeathVerdict,
    Totals,
)
from tests.unit.test_slot import work

OPTIONS = RestartPolicyOptions(jitter_ratio=0.0)


WRONG = "split[3] raised KeyError: 'm' in execute (app.py, line 9, in execute)"
AWAY = "split[3] raised OperationalError: in the dark in prepare (app.py, line 5, in prepare)\nTraceback ..."


class Judge:
    """The judge of one node, and counters that a test writes. Every death is a minute after the one before."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.now = 0.0
        self.judge = DeathJudge(OPTIONS, random.Random(1), lambda work: self.totals)

    def died(
        self, error: bool | str = False, nearer: bool = False, later: float = 60.0
    ) -> DeathVerdict:
        self.now += later
        text = error if isinstance(error, str) else WRONG * error
        return self.judge.died(6700, work(), self.now, 0.0, text, nearer)


def hopeless(verdicts: list[DeathVerdict]) -> list[bool]:
    return [verdict.hopeless for verdict in verdicts]


@pytest.mark.parametrize(("error", "limit"), [(True, HOPELESS_ERRORS), (False, HOPELESS_DEATHS)])
def test_deaths_without_progress_are_hopeless_errors_of_user_code_sooner(error: bool, limit: int) -> None:
    bench = Judge()
    found = [bench.died(error) for _ in range(limit)]
    assert hopeless(found) == [False] * (limit - 1) + [True]
    assert [verdict.deaths for verdict in found] == list(range(1, limit + 1))
    # Its workers are started again all the same: what they lack may come back.
    assert isinstance(found[-1].then, StartAgain)


def test_an_error_that_may_pass_has_ten_seconds_and_one_of_a_wrong_line_none() -> None:
    bench = Judge()
    found = [bench.died(AWAY, later=0.4).hopeless for _ in range(30)]
    assert found == [False] * 25 + [True] * 5
    bench.totals = Totals(acked=1)
    assert not bench.died(AWAY, later=30.0).hopeless
    assert [bench.died(WRONG, later=0.1).hopeless for _ in range(6)] == [False] * 5 + [True]


@pytest.mark.parametrize("progress", ["acked", "dead_letters", "crashes"])
def test_any_progress_is_hope(progress: str) -> None:
    bench = Judge()
    for n in range(100):
        assert not bench.died(True).hopeless
        bench.totals = Totals(acked=1 + n // 90)._replace(**{progress: n // 4 + 1})



def test_an_operator_s_reset_begins_anew_and_new_work_forgets_the_slot_s_deaths_alone() -> None:
    bench = Judge()
    verdicts = [bench.died(True, later=0.1) for _ in range(31)]
    assert verdicts[-1].then == GiveUp(31, 60.0)
    bench.judge.begin(6700)
    verdict = bench.died(True, later=0.1)
    assert (verdict.then, verdict.hopeless) == (StartAgain(0.0), True)
    bench.judge.reset(6700, work())
    assert bench.died(True) == DeathVerdict(StartAgain(0.0), False, 1, False)


def test_a_fork_that_is_refused_time_and_again_is_hopeless_and_never_given_up() -> None:
    bench = Judge()
    found = [bench.judge.fork_refused(6700, work()) for _ in range(HOPELESS_DEATHS)]
    assert hopeless(found[-2:]) == [False, True]
    assert all(isinstance(verdict.then, StartAgain) for verdict in found)


def test_deaths_that_bring_dead_letters_nearer_are_excused_until_nothing_was_ever_acked_for_so_many() -> None:
    bench, found = Judge(), []
    limit, errors = CRASHES_WITHOUT_ANY_ACK, HOPELESS_ERRORS
    for crashes in range(1, limit + errors + 1):
        bench.totals = Totals(0, crashes // 5, crashes)
        found.append(bench.died(True, nearer=True))
    assert [verdict.excused for verdict in found] == [True] * (limit - 1) + [False] * (errors + 1)
    # From then on they are deaths without progress.
    assert hopeless(found) == [False] * (limit + errors - 2) + [True] * 2


def test_a_stream_that_stops_acking_is_hopeless_in_the_end_and_an_ack_brings_hope_back() -> None:
    bench, limit = Judge(), CRASHES_WITHOUT_AN_ACK
    for totals, excused in (
        (Totals(5, 0, 2), True), (Totals(5, 0, 1 + limit), True), (Totals(5, 0, 2 + limit), False),
        (Totals(6, 0, 2 + limit), True),
    ):
        bench.totals = totals
        assert bench.died(nearer=True).excused is excused


def test_jitter_stays_in_its_band_and_spreads(seed: int) -> None:
    subject = RestartPolicy(RestartPolicyOptions(), random.Random(seed))
    found = [subject.fork_refused().delay_secs for _ in range(1000)][10:]
    assert 0.8 <= min(found) < 0.85
    assert 1.15 < max(found) <= 1.2



def test_a_death_that_brings_a_dead_letter_nearer_never_counts_against_the_slot() -> None:
    options = RestartPolicyOptions(jitter_ratio=0.0)
    subject = RestartPolicy(options, random.Random(1))
    for second in range(200):
        verdict = subject.died(float(second), 0.1, excused=True)
        assert isinstance(verdict, StartAgain)
        assert verdict.delay_secs <= options.first_delay_secs
    assert isinstance(subject.died(201.0, 0.1), StartAgain)


SLOTS = [SlotRef("node-1", 6700), SlotRef("node-2", 6700)]
RECORD = TopologyRecord("t-1", "t", "ACTIVE", {}, [], "blob", [], 0.0)


@pytest.fixture
def found() -> TopologyLife:
    return TopologyLife(RECORD, Assignment("t-1", 1, SLOTS, [[], []]))


def event(incarnation: int, name: str = "died", node: str = "node-1") -> SlotChanged:
    return SlotChanged(node, 6700, "t-1", incarnation, name, 0, 1.0, reason="killed")


def deaths(found: TopologyLife, events: Iterable[SlotChanged]) -> int:
    for one in events:
        found.slot_changed(one)
    return found.restarts_total


def test_a_death_that_is_told_again_counts_once_also_when_it_is_not_kept_any_more(
    found: TopologyLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology_life, "RESTARTS_KEPT", 2)
    assert deaths(found, [event(1), event(2), event(3), event(1), event(2), event(1, node="node-2")]) == 4
    again = TopologyLife(RECORD, found.assignment, found.state().restarts, found.restarts_total)
    assert deaths(again, [event(1), event(2), event(3), event(4)]) == 5


def test_who_was_ready_on_a_node_that_is_gone_has_died(found: TopologyLife) -> None:
    deaths(found, [event(1, "ready"), event(2, "ready", "node-2"), event(1, "stopped")])
    (death,) = found.assign(RECORD, Assignment("t-1", 2, [SLOTS[0], SLOTS[0]], [[], []]), 5.0)
    assert (death.slot, death.incarnation, death.reason) == ("node-2:6700", 2, "died with its node")
    assert found.restarts_total == 1
