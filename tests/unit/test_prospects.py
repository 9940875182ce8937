"""What deaths mean: the one judge of what is hopeless."""

from __future__ import annotations

import random

import pytest

from squall.scheduler.common.messages import SlotAssignment
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicyOptions, StartAgain
from squall.scheduler.supervisor.prospects import DeathVerdict, ProspectOptions, Prospects, Totals
from tests.unit.test_slot import work

OPTIONS = ProspectOptions(RestartPolicyOptions(jitter_ratio=0.0))


class Judge:
    """The prospects of one node, and counters that a test writes. Every death is a minute after the one before."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.now = 0.0
        self.judge = Prospects(OPTIONS, random.Random(1), lambda work: self.totals)

    def died(
        self, work: SlotAssignment, port: int = 6700, error: bool = False, nearer: bool = False, later: float = 60.0
    ) -> DeathVerdict:
        self.now += later
        return self.judge.died(port, work, self.now, 0.0, error, nearer)


@pytest.mark.parametrize(("error", "limit"), [(True, OPTIONS.hopeless_errors), (False, OPTIONS.hopeless_deaths)])
def test_deaths_without_progress_are_hopeless_errors_of_user_code_sooner(error: bool, limit: int) -> None:
    bench = Judge()
    found = [bench.died(work(), error=error) for _ in range(limit)]
    assert [verdict.hopeless for verdict in found] == [False] * (limit - 1) + [True]
    assert [verdict.deaths for verdict in found] == list(range(1, limit + 1))
    # Its workers are started again all the same: what they lack may come back.
    assert isinstance(found[-1].then, StartAgain)


@pytest.mark.parametrize("progress", ["acked", "dead_letters", "crashes"])
def test_any_progress_is_hope(progress: str) -> None:
    bench = Judge()
    for n in range(100):
        assert not bench.died(work(), error=True).hopeless
        bench.totals = Totals(acked=1 + n // 90)._replace(**{progress: n // 4 + 1})


def test_progress_after_the_last_death_takes_the_verdict_back() -> None:
    bench = Judge()
    for _ in range(5):
        bench.died(work(), error=True)
    assert bench.judge.is_hopeless(work())
    bench.totals = Totals(acked=1)
    assert not bench.judge.is_hopeless(work())
    assert bench.died(work(), error=True).deaths == 1


def test_an_operator_s_reset_begins_anew_and_new_work_forgets_the_slot_s_deaths_alone() -> None:
    bench = Judge()
    verdicts = [bench.died(work(), error=True, later=0.1) for _ in range(31)]
    assert verdicts[-1].then == GiveUp(31, 60.0)
    bench.judge.begin(6700)
    verdict = bench.died(work(), error=True, later=0.1)
    assert (verdict.then, verdict.hopeless) == (StartAgain(0.0), True)
    bench.judge.reset(6700, work())
    assert bench.died(work(), error=True) == DeathVerdict(StartAgain(0.0), False, 1, False)


def test_a_fork_that_is_refused_time_and_again_is_hopeless_and_never_given_up() -> None:
    bench = Judge()
    found = [bench.judge.fork_refused(6700, work()) for _ in range(OPTIONS.hopeless_deaths)]
    assert [verdict.hopeless for verdict in found[-2:]] == [False, True]
    assert all(isinstance(verdict.then, StartAgain) for verdict in found)


def test_deaths_that_bring_dead_letters_nearer_are_excused_until_nothing_was_ever_acked_for_so_many() -> None:
    bench, found = Judge(), []
    limit = OPTIONS.crashes_without_any_ack
    for crashes in range(1, limit + 6):
        bench.totals = Totals(0, crashes // 5, crashes)
        found.append(bench.died(work(), error=True, nearer=True))
    assert [verdict.excused for verdict in found] == [True] * (limit - 1) + [False] * 6
    # From then on they are deaths without progress.
    assert [verdict.hopeless for verdict in found] == [False] * (limit + 3) + [True] * 2


def test_a_stream_that_stops_acking_is_hopeless_in_the_end_and_an_ack_brings_hope_back() -> None:
    bench, limit = Judge(), OPTIONS.crashes_without_an_ack
    for totals, excused in (
        (Totals(5, 0, 2), True), (Totals(5, 0, 1 + limit), True), (Totals(5, 0, 2 + limit), False),
        (Totals(6, 0, 2 + limit), True),
    ):
        bench.totals = totals
        assert bench.died(work(), nearer=True).excused is excused
