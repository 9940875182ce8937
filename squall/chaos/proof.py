"""Proves one topology: learns its behaviour without faults, then tries seeds and judges each by that.

Guarantees: a seed is good only if the checker finds nothing, everything was drained after the faults, each death is
explained by a fault, and nothing is left behind. The result names what the proof cannot show of this topology; if it
could show nothing at all, the topology is refused.

Relies on: `squall.chaos.checker`, which judges messages by the taps' files alone.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from squall.chaos.checker import (
    NOTHING,
    CheckedRun,
    Law,
    SeedVerdict,
    SourceLaw,
    judge,
    learn,
    learn_source,
    read_run,
)
from squall.chaos.mix import Places, draw
from squall.chaos.result import Result
from squall.chaos.tapping import Tapping
from squall.chaos.taps import from_state
from squall.chaos.trial import Outcome, Subject, run
from squall.engine.api.config import Config
from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.text import plural
from squall.scheduler.faults.sentence import Fault

_FAIL_EVERY = 5
"""In the second run without faults, one message in this many is emitted again."""
_MOST_CRASHES = Config().max_crashes or 0
"""With fewer allowed, deaths by chance may end a message."""
_LOAD = 0.8
"""Most of the rate without faults at which a source is paced: a topology at its limit never catches up after a fault,
and with many messages open each would wait for longer than its timeout."""
_SINK_KILLS, _SINK_SECS = (0.2, 0.35, 0.5, 0.65, 0.8), 4.0
"""When the workers of sinks are killed, alone, if there is a result: shares of the time, which is not shorter; a busy
machine needs some of it for each replacement."""
_EARLY_SHARE = 0.9
"""Share of the time with faults that a paced source takes: replays take the rest."""


class PromiseBroken(SquallError):
    """The topology does not keep its promise even without faults, or nothing of it can be compared."""


@dataclass(frozen=True)
class Expected:
    """The topology's behaviour in runs without faults."""

    laws: tuple[Law, ...]
    source: SourceLaw
    rates: Mapping[str, float]
    """Spout -> most emits per second and task: a finite source lasts as long as the faults; none is at its limit."""
    messages: int
    secs: float
    dead: frozenset[str] = frozenset()
    """Keys of messages that were given up."""
    by_task: bool = False
    """See `Tapping.by_task`."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Way into a sink -> what is compared there; the same of the result."""
    not_shown: str = ""
    """The effects of the topology that are not compared."""


@dataclass
class SeedResult:
    """The verdict on one seed."""

    seed: int
    faults: list[Fault]
    outcome: Outcome
    verdict: SeedVerdict
    problems: list[str] = field(default_factory=list)
    """Why it failed, one line per reason."""
    logs: str = ""
    """The directory of the taps' files, if it failed."""

    @property
    def good(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.to_builtins(self)
        outcome = document["run"] = document.pop("outcome")
        outcome["injected"] = [
            msgspec.to_builtins(injected.fault) | {
                "began_secs": round(injected.began_secs - self.outcome.started_secs, 6),
                "ended_secs": round(injected.ends_secs - self.outcome.started_secs, 6),
                "missed": injected.missed,
            }
            for injected in self.outcome.injected
        ]  # fmt: skip
        document["good"], document["verdict"]["good"] = self.good, self.verdict.good
        return document


class Proof:
    """Runs and judges seeds, one at a time."""

    def __init__(
        self, subject: Subject, kinds: Sequence[str], for_secs: float, directory: Path,
        should_stop: Callable[[], bool] = lambda: False, result: Result | None = None,
        key: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        """`directory`: the place for the taps' files. `result`: what is compared beside what the taps see; `key`: see
        `Tapping.key`."""
        if subject.config.ackers == 0:
            raise UsageError(
                "setting ackers is 0: nothing is tracked or emitted again, so the proof could not show that anything "
                "arrives; allowed: an integer from 1 up"
            )
        self._subject = subject
        self._kinds = kinds
        self._for_secs = for_secs
        self._directory = directory
        self._should_stop = should_stop
        self._result = result
        self._key = key
        crashes = subject.config.max_crashes
        self._gives_up = subject.config.max_attempts is not None or (crashes is not None and crashes < _MOST_CRASHES)
        """True if the topology's own settings let faults end a message that no fault was meant for."""

    def learn(self) -> Expected:
        """Run the topology twice without faults. UsageError if nothing could be proved of it."""
        first, outcome, _ = self._reference({}, by_task=False)
        # Without faults no message moves to another task: these have ids of their own.
        by_task = any(message.names_differ for message in (first.messages | first.results).values())
        if by_task:
            first, outcome, _ = self._reference({}, by_task=True)
        _check_tracked(first, outcome)
        _check_ids(first)
        # As long as a run with faults: what a component does by the clock is seen without faults too.
        rates = self._rates(outcome, finite=True) if outcome.exhausted else {}
        lossy = {"fail_every": _FAIL_EVERY, "refuse_every": 0 if self._gives_up else _FAIL_EVERY}
        second, again, differs = self._reference(rates, by_task=by_task, **lossy)
        if forgotten := never_again(second):
            spouts = ", ".join(sorted({name.partition("[")[0] for name in forgotten}))
            raise UsageError(
                f"spout {spouts} cannot replay: it did not emit {plural(len(forgotten), 'failed message')} again, "
                f"such as {forgotten[0]}; so the proof could not show that anything survives a death; a "
                "ReplayingSpout emits failed messages again"
            )
        _check_ids(second)
        if not second.messages:
            raise UsageError(
                "the source does not begin anew: its second run emitted nothing; each run has state directories of its "
                "own, so keep positions in context.state_dir"
            )
        finite = outcome.exhausted and again.exhausted
        laws = learn([first, second], self._key is not None, from_state(self._subject.topology))
        source = learn_source([first, second], finite)
        if source.unstable:
            raise UsageError(
                f"spout {', '.join(source.unstable)} gives its messages new ids in each run: two runs without faults "
                "share none. So the proof cannot tell which messages come back after a death; an id must be the same "
                "after every start, such as the place of a record in its source"
            )
        for reference, seen in ((first, outcome), (second, again)):
            _check_whole("without any fault", reference, seen, laws)
        for option, given in (("--result", self._result), ("--key", self._key)):
            if given is not None and not finite:
                raise UsageError(
                    f"{option} is for a source that ends, and this one did not within {self._for_secs:g} s without "
                    "faults: make its input shorter, or --for longer"
                )
        if differs:
            raise PromiseBroken(f"without any fault, but with messages that were emitted twice: {differs}")
        if self._result is None:
            _check_compared(laws)
        expected = Expected(
            tuple(laws), source, self._rates(outcome, finite=finite),
            len(first.messages), outcome.secs, _dead_in(first) | _dead_in(second), by_task,
            {law.label: law.compares for law in laws} | ({} if self._result is None else {"--result": "result"}),
        )
        return replace(expected, not_shown=self._kill_sinks(expected))

    def _kill_sinks(self, expected: Expected) -> str:
        """Kill the workers of sinks alone, if there is a result, which must be the same then. Returns what cannot be
        shown."""
        sinks = ", ".join(self._subject.sinks)
        if self._result is None:
            return (
                f"effects of {sinks} outside of the topology, such as files, and values that differ between runs; "
                "--result FILE:FUNCTION reads the result back and compares it, --key FILE:FUNCTION what it makes of "
                "each tuple"
            )
        killed: list[Fault] = []
        for_secs = max(self._for_secs, _SINK_SECS)
        rates = {spout: rate * self._for_secs / for_secs for spout, rate in expected.rates.items()}

        def kills(places: Places) -> list[Fault]:
            for share in _SINK_KILLS:
                killed.extend(Fault("kill", (worker,), share * for_secs) for worker in places.sink_workers)
            return killed

        path, outcome, differs = self._run("sinks-", kills, rates, True, for_secs, by_task=expected.by_task)
        if not killed:
            return (
                f"deaths of {sinks} alone: each of its workers has a spout, too, which may emit everything again and "
                "so make good what a sink lost; --set workers=N places them apart"
            )
        when = f"after kills of {', '.join(sorted({kill.targets[0] for kill in killed}))} alone"
        _check_whole(when, read_run(path), outcome, expected.laws, expected.source, differs)
        return ""

    def _run(
        self, name: str, draw: Callable[[Places], list[Fault]], rates: Mapping[str, float], to_its_end: bool,
        for_secs: float | None = None, **tapping: Any,
    ) -> tuple[Path, Outcome, str]:
        """Run the topology once, for `for_secs` (default: the time with faults). Returns the taps' directory, what was
        seen, and how the result differs."""
        path = Path(tempfile.mkdtemp(prefix=name, dir=self._directory))
        subject = self._subject
        if self._result is not None:
            subject = replace(subject, topology=self._result.begin())
        tapped = Tapping(str(path), subject.sinks, self._key, rates, **tapping)
        outcome = run(subject, tapped, draw, for_secs or self._for_secs, to_its_end, self._should_stop)
        return path, outcome, "" if self._result is None else self._result.end()

    def _rates(self, first: Outcome, *, finite: bool) -> dict[str, float]:
        """`Expected.rates`, by a run at full speed."""
        secs = first.secs / _LOAD
        if finite:
            secs = max(secs, self._for_secs * _EARLY_SHARE)
        return {spout: max(1, most) / secs for spout, most in first.emitted_by_task.items()}

    def _reference(self, rates: Mapping[str, float], **tapping: Any) -> tuple[CheckedRun, Outcome, str]:
        path, outcome, differs = self._run("reference-", lambda places: [], rates, bool(rates), **tapping)
        seen = read_run(path)
        if not outcome.drained:
            _check_whole("without any fault", seen, outcome, ())
        return seen, outcome, differs

    def try_seed(self, seed: int, expected: Expected, only: Sequence[int] | None = None) -> SeedResult:
        """Run and judge one seed; `only`: numbers, from 1, of the faults to inject, or 0 for none."""
        faults: list[Fault] = []

        def drawn(places: Places) -> list[Fault]:
            faults[:] = draw(seed, self._kinds, places, self._for_secs)
            if only is not None:
                if max(only) > len(faults):
                    raise UsageError(
                        f"--only has fault {max(only)}; seed {seed} has {plural(len(faults), 'fault')}, numbered from 1"
                    )
                faults[:] = [fault for number, fault in enumerate(faults, 1) if number in only]
            return faults

        name, by_task = f"seed-{seed}-", expected.by_task
        path, outcome, differs = self._run(name, drawn, expected.rates, expected.source.ends, by_task=by_task)
        seen = read_run(path)
        verdict = judge(seen, expected.laws, expected.source, self._may_die(outcome, expected))
        verdict.asked |= expected.asked
        first_ns = min((one.began_secs for one in outcome.injected if not one.missed), default=float("inf")) * 1e9
        if all(message.acked_ns is not None and message.acked_ns < first_ns for message in seen.messages.values()):
            verdict.not_shown.append(f"seed {seed}: every message was acked before the first fault")
        missed = {one.fault.targets[0] for one in outcome.injected if one.missed and one.fault.kind == "kill"}
        for worker in sorted(missed - {death.worker for death in outcome.deaths}):
            verdict.not_shown.append(f"seed {seed}: a death of {worker}: its kill was missed")
        if self._gives_up and verdict.dead_letters:
            verdict.not_shown.append("max_attempts or max_crashes is set low: that only what is poison was given up")
        if differs and verdict.dead_letters:
            verdict.not_shown.append(f"seed {seed}: the result, which may lack what dead letters had: {differs}")
            differs = ""
        result = SeedResult(seed, faults, outcome, verdict, problems_of(outcome, verdict, differs))
        if result.good:
            shutil.rmtree(path)
        else:
            result.logs = str(path)
        return result

    def _may_die(self, outcome: Outcome, expected: Expected) -> Callable[[str], bool] | None:
        """Return a test for messages that may be given up, because a poison was meant for them; None: any may."""
        if self._gives_up:
            return None
        poisons = [str(one.fault.params["matches"]) for one in outcome.injected if one.fault.kind == "poison"]
        return lambda key: key in expected.dead or any(re.search(poison, key) for poison in poisons)


def never_again(run: CheckedRun) -> list[str]:
    """Return the names of messages that failed and that their source did not emit again."""
    return [one.name for one in run.messages.values() if one.fails and one.emits <= 1 and one.dead is None]


def _check_whole(
    when: str, run: CheckedRun, outcome: Outcome, laws: Sequence[Law], source: SourceLaw | None = None,
    differs: str = "",
) -> None:
    """Refuse a run before the seeds that was not drained, breaks these laws, or has another result."""
    verdict = judge(run, laws, source)
    if problems := problems_of(outcome, verdict, differs):
        if verdict.findings and not differs:
            first, total = verdict.findings[0], plural(sum(verdict.counts.values()), "finding")
            problems[0] = f"{first.kind}: {first.message}: {first.what} ({total} in all)"
            problems[0] += f"; {outcome.why_not}" * bool(outcome.why_not)
        raise PromiseBroken(f"{when}: {problems[0]}")


def _check_compared(laws: Sequence[Law]) -> None:
    """Refuse a topology if nothing that its sinks receive can be compared."""
    if all(law.compares == NOTHING for law in laws):
        reasons = "; ".join(f"{law.label}: {law.why}" for law in laws) or "no sink receives anything"
        raise PromiseBroken(
            f"nothing can be compared: {reasons}; --result FILE:FUNCTION compares the result, --key FILE:FUNCTION what "
            "it makes of each tuple, --sink BOLT another bolt"
        )


def _dead_in(run: CheckedRun) -> frozenset[str]:
    return frozenset(key for key, message in run.messages.items() if message.dead is not None)


def _check_tracked(first: CheckedRun, outcome: Outcome) -> None:
    if not first.messages and not first.untracked:
        raise UsageError(f"the spouts emitted nothing in {outcome.secs:.0f} s; there is nothing to prove")
    tracked = {message.name.partition("[")[0] for message in first.messages.values()}
    if untracked := sorted(first.untracked.keys() - tracked):
        raise UsageError(
            f"spout {', '.join(untracked)} cannot replay: it emits without message ids. The proof could not show that "
            "anything of it arrives; emit(values, message_id=...) makes it tracked"
        )


def _check_ids(reference: CheckedRun) -> None:
    """Refuse ids by which messages cannot be told apart. Those that do not equal themselves (NaN) are among them."""
    for name in reference.reused.values():
        raise UsageError(
            f"{name}: its spout emits several messages under this id, though none had failed; so the proof could not "
            f"tell them apart, nor show that each arrives. It found {plural(len(reference.reused), 'such id')}; an id "
            "belongs to one message, for ever"
        )


def problems_of(outcome: Outcome, verdict: SeedVerdict, differs: str) -> list[str]:
    """Return the reasons why a run failed; none if it did not. `differs`: how its result does."""
    problems = [differs] * bool(differs) + [f"{kind}: {count}" for kind, count in verdict.counts.items()]
    if not outcome.drained:
        problems.append(f"not drained after the faults: {outcome.why_not}")
    problems += [
        f"{death.worker} died at {death.at_secs:.3f} s by no fault: {death.reason}"
        for death in outcome.deaths if not death.claimed_by
    ]
    problems += [f"{name} died and was not replaced" for name in outcome.away]
    problems += [f"left behind: {line}" for line in outcome.left]
    return problems
