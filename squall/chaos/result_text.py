"""Shows the results of `squall chaos` to people: a line per seed, the timeline of one, the conclusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from squall.chaos.checker import NOTHING
from squall.engine.foreign.text import plain, plural
from squall.engine.report.failure_log import ComponentFailures
from squall.scheduler.faults.sentence import text_of

if TYPE_CHECKING:
    from squall.chaos.proof import SeedResult

_SHOWN_FINDINGS = 10


def expected_text(expected: Mapping[str, Any]) -> str:
    """Tell the requirements learned in runs without faults."""
    source = "finite, paced" if expected["finite"] else "endless, paced, stopped after the faults"
    messages = plural(expected["messages"], "message")
    lines = [f"without faults, twice: {messages} in {expected['secs']:.1f} s; the source is {source}"]
    lines += [f"  {plain(label)}: compares {asks}" for label, asks in expected["asked"].items()]
    return "\n".join(lines)


def failures_text(failures: Mapping[str, ComponentFailures]) -> list[str]:
    """Return a line for each component in which messages failed: how often, and the last error."""
    lines = []
    for name, one in sorted(failures.items()):
        counts = ", ".join(f"{count:,} {reason}" for reason, count in one.counts.items())
        errors = [record.error for record in one.last if record.error]
        lines.append(f"failures of {name}: {counts}" + (f", the last: {errors[-1]}" if errors else ""))
    return lines


def seed_text(result: SeedResult) -> str:
    """Show a seed on a line of figures, and the reasons below it if it failed."""
    verdict, outcome = result.verdict, result.outcome
    recoveries = sorted(death.working_after_secs * 1e3 for death in outcome.deaths if death.working_after_secs)
    recovery = "no recovery to measure"
    if recoveries:
        median = recoveries[len(recoveries) // 2]
        recovery = f"at work again after {median:.0f} ms (median), {recoveries[-1]:.0f} ms (longest)"
    parts = [
        plural(verdict.messages, "message"), f"{verdict.ok:,} ok", f"{verdict.recovered:,} of them recovered",
        plural(verdict.duplicates, "duplicate"), plural(verdict.dead_letters, "dead letter"),
        plural(len(outcome.injected), "fault"), plural(len(outcome.deaths), "death"), recovery,
        f"drained {outcome.secs - outcome.healed_secs:.1f} s after the last",
    ]  # fmt: skip
    conclusion = f"nothing lost of {_scope(verdict.asked)}" if result.good else "FAILED"
    lines = [f"seed {result.seed}: {conclusion}; {', '.join(parts)}"]
    lines += [f"  {plain(problem)}" for problem in result.problems]
    for finding in verdict.findings[:_SHOWN_FINDINGS]:
        lines.append("  " + plain(f"{finding.kind}: {finding.message}: {finding.what}"))
    if result.logs:
        lines.append(f"  what was emitted and received: {plain(result.logs)}")
    return "\n".join(lines)


def _scope(asked: Mapping[str, str]) -> str:
    """ "what is compared: values, count"."""
    return "what is compared: " + ", ".join(dict.fromkeys(law for law in asked.values() if law != NOTHING))


def timeline_text(result: SeedResult) -> str:
    """Show faults, their ends, deaths, and workers at work again, in order."""
    outcome = result.outcome
    rows: list[tuple[float, str]] = []
    for injected in outcome.injected:
        text = text_of(msgspec.structs.replace(injected.fault, at_secs=0.0, seed=None))
        missed = f": missed, {injected.missed}" if injected.missed else ""
        rows.append((injected.began_secs - outcome.started_secs, text + missed))
        if injected.fault.for_secs and not missed:
            rows.append((injected.ends_secs - outcome.started_secs, f"end of {text}"))
    for death in outcome.deaths:
        rows.append((death.at_secs, f"{death.worker} died by {death.claimed_by or 'no fault'}: {death.reason}"))
        if death.working_after_secs is not None:
            at_secs, ms = death.at_secs + death.working_after_secs, death.working_after_secs * 1e3
            rows.append((at_secs, f"{death.worker} is at work again, {ms:.0f} ms after its death"))
    rows.append((outcome.healed_secs, "healed: no fault is in force any more"))
    if outcome.drained:
        rows.append((outcome.secs, "drained"))
    lines = [f"{secs:9.3f} s  {plain(event)}" for secs, event in sorted(rows)]
    return "\n".join([f"timeline of seed {result.seed}:", *lines])


def verdict_text(document: Mapping[str, Any]) -> str:
    """Draw the conclusion from all seeds, with its limits."""
    seeds = document["seeds"]
    bad = [str(result["seed"]) for result in seeds if not result["good"]]
    limits = list(dict.fromkeys(limit for result in seeds for limit in result["verdict"]["not_shown"]))[:20]
    if effects := document["expected"]["not_shown"]:
        limits.append(effects)
    lines = [f"NOT SHOWN: {plain(limit)}" for limit in limits]
    if bad:
        lines.append(f"FAILED: {len(bad)} of {plural(len(seeds), 'seed')}: {', '.join(bad[:50])}")
    else:
        scope = _scope(document["expected"]["asked"]) + " (see NOT SHOWN above)" * bool(limits)
        shown = f"nothing lost or invented of {scope}"
        bound = f"; so less than {document['bound']:.1%} of such runs fail (95 %)" if document["bound"] < 1 else ""
        lines.append(f"{plural(len(seeds), 'seed')}, {shown}, every death explained, nothing left behind{bound}")
    return "\n".join(lines)
