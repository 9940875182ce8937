"""Proves one topology: learns its behaviour without faults, then tries seeds and judges each by that.

Guarantees: a seed is good only if the checker finds nothing, everything was drained after the faults, each death is
explained by a fault, and nothing is left behind. The result names what the proof cannot show of this topology; if it
could show nothing at all, the topology is refused.

Relies on: `squall.chaos.checker`, which judges messages by the taps' files alone.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from squall.chaos.checker import Law, Run, Verdict, judge, learn, names_of, never_again, read_run
from squall.chaos.mix import Places, draw
from squall.chaos.taps import Tapping
from squall.chaos.trial import Outcome, Subject, run
from squall.engine.errors import SquallError, UsageError
from squall.engine.plural import plural
from squall.scheduler.faults.fault import Fault

_FAIL_EVERY = 5
"""In the second run without faults, one message in this many is emitted again."""
_EARLY_SHARE = 0.9
"""Share of the time with faults that a paced source takes: replays take the rest."""


class WrongWithoutFaults(SquallError):
    """The topology does not keep its promise even without faults."""


@dataclass(frozen=True)
class Expected:
    """The topology's behaviour in runs without faults."""

    laws: tuple[Law, ...]
    all_of: Mapping[str, str]
    """Key -> name of every message of a finite source; empty for an endless one."""
    finite: bool
    rates: Mapping[str, float]
    """Spout -> emits per second and task with which a finite source lasts as long as the faults."""
    messages: int
    secs: float


@dataclass
class SeedResult:
    """The verdict on one seed."""

    seed: int
    faults: list[Fault]
    outcome: Outcome
    verdict: Verdict
    problems: list[str] = field(default_factory=list)
    """Why it failed, one line per reason."""
    logs: str = ""
    """The directory of the taps' files, if it failed."""

    @property
    def good(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        outcome = {name: value for name, value in vars(self.outcome).items() if name != "injected"}
        outcome["deaths"] = [asdict(death) for death in self.outcome.deaths]
        outcome["samples"] = [asdict(sample) for sample in self.outcome.samples]
        start_secs = self.outcome.started_secs
        outcome["injected"] = [
            {
                **one.fault.to_json(),
                "began_secs": round(one.began_secs - start_secs, 6),
                "ended_secs": round(one.ends_secs - start_secs, 6),
                "missed": one.missed,
            }
            for one in self.outcome.injected
        ]
        faults = [fault.to_json() for fault in self.faults]
        return {
            "seed": self.seed, "good": self.good, "problems": self.problems, "faults": faults, "logs": self.logs,
            "verdict": self.verdict.to_dict(), "run": outcome,
        }  # fmt: skip


class Proof:
    """Runs and judges seeds, one at a time."""

    def __init__(
        self, subject: Subject, kinds: Sequence[str], for_secs: float, directory: Path,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`directory`: the place for the taps' files."""
        if subject.config.ackers == 0:
            raise UsageError(
                "with ackers=0 nothing is tracked, and nothing is emitted again: the proof could not show that "
                "anything arrives; allowed: 1 and more"
            )
        self._subject = subject
        self._kinds = kinds
        self._for_secs = for_secs
        self._directory = directory
        self._should_stop = should_stop

    def learn(self) -> Expected:
        """Run the topology twice without faults. UsageError if nothing could be proved of it."""
        first, outcome = self._reference(0)
        _check_tracked(first, outcome)
        second, again = self._reference(_FAIL_EVERY)
        if forgotten := never_again(second):
            spouts = ", ".join(sorted({name.partition("[")[0] for name in forgotten}))
            raise UsageError(
                f"spout {spouts} cannot replay: of the messages that failed it did not emit "
                f"{plural(len(forgotten), 'message')} again, {forgotten[0]} for one. The proof could not show that "
                "anything survives a death; a ReplayingSpout emits again what failed"
            )
        if not second.messages:
            raise UsageError(
                "the source does not begin anew: run once more, it emitted nothing. Each run has state directories of "
                "its own: keep positions in context.state_dir"
            )
        laws = learn([first, second])
        finite = outcome.exhausted and again.exhausted
        for reference, seen in ((first, outcome), (second, again)):
            verdict = judge(reference, laws)
            if not seen.drained or not verdict.good:
                said = seen.why_not if not seen.drained else _first_of(verdict)
                raise WrongWithoutFaults(f"without any fault: {said}")
        secs = self._for_secs * _EARLY_SHARE
        return Expected(
            tuple(laws), names_of([first, second]) if finite else {}, finite,
            {spout: max(1, most) / secs for spout, most in outcome.emitted_by_task.items()} if finite else {},
            len(first.messages), outcome.secs,
        )

    def _reference(self, fail_every: int) -> tuple[Run, Outcome]:
        path = Path(tempfile.mkdtemp(prefix="reference-", dir=self._directory))
        tapping = Tapping(str(path), self._subject.sinks, fail_every=fail_every)
        outcome = run(self._subject, tapping, lambda places: [], self._for_secs, False, self._should_stop)
        return read_run(path), outcome

    def try_seed(self, seed: int, expected: Expected, only: Sequence[int] | None = None) -> SeedResult:
        """Run and judge one seed; `only`: numbers, from 1, of the faults to inject."""
        faults: list[Fault] = []

        def drawn(places: Places) -> list[Fault]:
            faults[:] = draw(seed, self._kinds, places, self._for_secs)
            if only is not None:
                faults[:] = [fault for number, fault in enumerate(faults, 1) if number in only]
            return faults

        path = Path(tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=self._directory))
        tapping = Tapping(str(path), self._subject.sinks, expected.rates or None)
        outcome = run(self._subject, tapping, drawn, self._for_secs, expected.finite, self._should_stop)
        seen = read_run(path)
        verdict = judge(seen, expected.laws, expected.all_of)
        first_ns = min((one.began_secs for one in outcome.injected if not one.missed), default=float("inf")) * 1e9
        if all(message.acked_ns is not None and message.acked_ns < first_ns for message in seen.messages.values()):
            verdict.not_shown.append(f"seed {seed}: every message was acked before the first fault")
        result = SeedResult(seed, faults, outcome, verdict)
        result.problems = problems_of(outcome, verdict)
        if result.good:
            shutil.rmtree(path)
        else:
            result.logs = str(path)
        return result


def _check_tracked(first: Run, outcome: Outcome) -> None:
    if not first.messages and not first.loose:
        raise UsageError(f"the spouts emitted nothing in {outcome.secs:.0f} s; there is nothing to prove")
    tracked = {message.name.partition("[")[0] for message in first.messages.values()}
    if untracked := sorted(first.loose.keys() - tracked):
        raise UsageError(
            f"spout {', '.join(untracked)} cannot replay: it emits without message ids. The proof could not show that "
            "anything of it arrives; emit(values, message_id) makes it tracked"
        )


def _first_of(verdict: Verdict) -> str:
    found = verdict.findings[0]
    return f"{found.kind}: {found.message}: {found.what} ({sum(verdict.counts.values())} findings in all)"


def problems_of(outcome: Outcome, verdict: Verdict) -> list[str]:
    """The reasons why a run failed; empty if it did not."""
    found = [f"{kind}: {count}" for kind, count in verdict.counts.items()]
    if not outcome.drained:
        found.append(f"not drained after the faults: {outcome.why_not}")
    found += [
        f"worker {death.worker} died at {death.at_secs:.3f} s by no fault: {death.reason}"
        for death in outcome.deaths
        if not death.claimed_by
    ]
    found += [f"left behind: {line}" for line in outcome.left]
    return found
