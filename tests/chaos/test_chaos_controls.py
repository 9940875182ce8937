"""Negative controls of `squall chaos`, on real clusters: whatever breaks the promise is found, every time.

The same topology, laws and kills each time; one thing is broken, and what it does to the messages has to be named.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall import Config, Topology
from squall.chaos.checker import ALTERED, EARLY, INVENTED, LOST, REPEATED, VALUES, Law, SeedVerdict, judge, read_run
from squall.chaos.mix import Places
from squall.chaos.proof import Expected, Proof, problems_of
from squall.chaos.tapping import Tapping
from squall.chaos.trial import Outcome, Subject, run
from squall.scheduler.faults.fault import Fault
from tests.chaos import chaos_parts, exact_chaos

FAULTS_SECS = 1.2
KILLS_SECS = (0.35, 0.7, 1.05)
SINKS = ("end",)
Try = Callable[..., tuple[Outcome, SeedVerdict]]


def subject(topology: Topology, config: Config, drain_secs: float = 30.0) -> Subject:
    return Subject(topology, None, config, SINKS, drain_secs=drain_secs)


def kill_everybody(places: Places) -> list[Fault]:
    return [Fault("kill", (worker,), secs) for secs in KILLS_SECS for worker in places.workers]


def leave_alone(places: Places) -> list[Fault]:
    return []


def repeat_frames(places: Places) -> list[Fault]:
    return [Fault("duplicate", probability=0.3, for_secs=60.0, params={"frames": "data"})]


def kill_and_repeat(places: Places) -> list[Fault]:
    return repeat_frames(places) + kill_everybody(places)


@pytest.fixture(scope="module")
def expected() -> Iterator[Expected]:
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        proof = Proof(subject(chaos_parts.topology(), Config(workers=2)), ("kill",), FAULTS_SECS, Path(name))
        yield proof.learn()


@pytest.fixture
def trial(expected: Expected, tmp_path: Path) -> Try:
    def trial(
        topology: Topology, config: Config | None = None,
        faults: Callable[[Places], list[Fault]] = kill_everybody, drain_secs: float = 30.0,
    ) -> tuple[Outcome, SeedVerdict]:
        tapping = Tapping(str(tmp_path), SINKS, expected.rates, by_task=expected.by_task)
        tried = subject(topology, config or Config(workers=2), drain_secs)
        outcome = run(tried, tapping, faults, FAULTS_SECS, True)
        return outcome, judge(read_run(tmp_path), expected.laws, expected.source)

    return trial


def kinds(verdict: SeedVerdict) -> set[str]:
    return {finding.kind for finding in verdict.findings}


def of_own_ledger(path: Path) -> SeedVerdict:
    """What the sink itself wrote down."""
    kept = read_run(path)
    expected = {key: Counter(message.digests) for key, message in kept.messages.items()}
    verdict = judge(kept, [Law("own ledger", VALUES, expected, others=1)])
    assert verdict.messages == chaos_parts.MESSAGES
    return verdict


def test_the_whole_topology_survives(trial: Try, expected: Expected, tmp_path: Path) -> None:
    assert {law.asks for law in expected.laws} == {"values"}
    outcome, verdict = trial(chaos_parts.topology(ledger=str(tmp_path)), faults=kill_and_repeat)
    assert problems_of(outcome, verdict) == []
    assert of_own_ledger(tmp_path).good
    assert verdict.recovered > 0
    # The first kills find both workers; later ones may come before the successors.
    kills = [one for one in outcome.injected if one.fault.kind == "kill"]
    assert len(outcome.deaths) == sum(not one.missed for one in kills) >= 2
    assert all(death.claimed_by == "kill" for death in outcome.deaths)


def test_equal_text_goes_to_the_same_task_in_each_run(tmp_path: Path) -> None:
    words = Subject(exact_chaos.words([str(tmp_path / "out")]), None, Config(workers=2), ("count",))
    runs = []
    for number in "12":
        (tmp_path / number).mkdir()
        run(words, Tapping(str(tmp_path / number), ("count",)), leave_alone, 0.1, True)
        runs.append({key: message.received for key, message in read_run(tmp_path / number).messages.items()})
    placed, again = ({(key, label): {digest for digest, _ in records} for key, received in each.items()
                      for label, records in received.items()} for each in runs)
    assert placed == again


def test_without_ackers_messages_are_lost(trial: Try) -> None:
    _, verdict = trial(chaos_parts.topology(halves=chaos_parts.Slow()), Config(workers=2, ackers=0))
    assert kinds(verdict) >= {LOST, EARLY}


def test_links_that_take_repeats_are_found(trial: Try) -> None:
    config = Config(workers=2, message_timeout_secs=0.5, batch_tuples=1)
    _, verdict = trial(chaos_parts.topology(halves=chaos_parts.Breaks("dedupe")), config, repeat_frames, drain_secs=0.5)
    assert REPEATED in kinds(verdict)
    assert not kinds(verdict) & {ALTERED, INVENTED}


def test_an_acker_without_its_guard_is_found(trial: Try) -> None:
    _, verdict = trial(chaos_parts.topology(halves=chaos_parts.Breaks("init guard", secs=0.01)))
    assert EARLY in kinds(verdict)


def test_a_position_that_is_the_highest_is_found(trial: Try) -> None:
    _, verdict = trial(chaos_parts.topology(highest=True))
    assert kinds(verdict) == {LOST}


def test_a_death_by_no_fault_is_found(trial: Try, tmp_path: Path) -> None:
    dies = chaos_parts.DiesOnce(str(tmp_path / "died"))
    outcome, verdict = trial(chaos_parts.topology(halves=dies), faults=leave_alone)
    assert verdict.good
    (problem,) = problems_of(outcome, verdict)
    assert "died at" in problem
    assert "by no fault: killed by SIGKILL" in problem
