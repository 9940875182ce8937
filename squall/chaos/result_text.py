"""Shows the results of `squall chaos` to people: a line per seed, the timeline of one, the conclusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.chaos.checker import NOTHING
from squall.engine.foreign.text import plain
from squall.engine.plural import plural
from squall.engine.report.failure_log import ComponentFailures

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


def seed_text(result: Mapping[str, Any]) -> str:
    """Show a seed on a line of figures, and the reasons below it if it failed."""
    verdict, run = result["verdict"], result["run"]
    recoveries = sorted(death["working_after_secs"] for death in run["deaths"] if death["working_after_secs"])
    recovery = "no recovery to measure"
    if recoveries:
        median, longest = recoveries[len(recoveries) // 2] * 1e3, recoveries[-1] * 1e3
        recovery = f"at work again after {median:.0f} ms (median), {longest:.0f} ms (longest)"
    parts = [
        plural(verdict["messages"], "message"), f"{verdict['ok']:,} ok", f"{verdict['recovered']:,} of them recovered",
        plural(verdict["duplicates"], "duplicate"), plural(verdict["dead_letters"], "dead letter"),
        plural(len(run["injected"]), "fault"), plural(len(run["deaths"]), "death"), recovery,
        f"drained {run['secs'] - run['healed_secs']:.1f} s after the last",
    ]  # fmt: skip
    said = f"nothing lost of {_scope(verdict['asked'])}" if result["good"] else "FAILED"
    lines = [f"seed {result['seed']}: {said}; {', '.join(parts)}"]
    lines += [f"  {plain(problem)}" for problem in result["problems"]]
    for finding in verdict["findings"][:_SHOWN_FINDINGS]:
        lines.append("  " + plain(f"{finding['kind']}: {finding['message']}: {finding['what']}"))
    if result["logs"]:
        lines.append(f"  what was emitted and received: {plain(result['logs'])}")
    return "\n".join(lines)


def _scope(asked: Mapping[str, str]) -> str:
    """ "what is compared: values, count"."""
    return "what is compared: " + ", ".join(dict.fromkeys(law for law in asked.values() if law != NOTHING))


def timeline(result: Mapping[str, Any]) -> list[tuple[float, str]]:
    """(seconds, event), in order: faults, their ends, deaths, workers at work again."""
    run = result["run"]
    rows: list[tuple[float, str]] = []
    for one in run["injected"]:
        what = fault_text(one)
        rows.append((one["began_secs"], f"{what}: missed, {one['missed']}" if one["missed"] else what))
        if one.get("for_secs") and not one["missed"]:
            rows.append((one["ended_secs"], f"end of {what}"))
    for death in run["deaths"]:
        by = f"by {death['claimed_by']}" if death["claimed_by"] else "by no fault"
        rows.append((death["at_secs"], f"{death['worker']} died {by}: {death['reason']}"))
        if death["working_after_secs"] is not None:
            ms = death["working_after_secs"] * 1e3
            at_secs = death["at_secs"] + death["working_after_secs"]
            rows.append((at_secs, f"{death['worker']} is at work again, {ms:.0f} ms after its death"))
    rows.append((run["healed_secs"], "healed: no fault is in force any more"))
    if run["drained"]:
        rows.append((run["secs"], "drained"))
    return sorted(rows)


def timeline_text(result: Mapping[str, Any]) -> str:
    lines = [f"{secs:9.3f} s  {plain(what)}" for secs, what in timeline(result)]
    return "\n".join([f"timeline of seed {result['seed']}:", *lines])


def fault_text(fault: Mapping[str, Any]) -> str:
    """ "stop node-1:6700 for 0.4 s"."""
    words = [fault["kind"], *fault.get("targets", ())]
    words += [f"{name}={value}" for name, value in fault.get("params", {}).items()]
    words += [f"with probability {fault['probability']:g}"] if fault.get("probability") else []
    words += [f"for {fault['for_secs']:g} s"] if fault.get("for_secs") else []
    return " ".join(words)


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
