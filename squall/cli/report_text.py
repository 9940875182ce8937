"""Shows a report to people: its attempts, failures and components' own metrics as lines.

Most read the figures that a report and a status have in common, for both `squall run` and `squall status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from squall.cli.output import note
from squall.cli.screen import Block, Grid, alarm_cell, millis, print_blocks
from squall.engine.foreign.text import plural
from squall.engine.report.failure_log import equal_deaths, equal_failures
from squall.engine.report.run_report import ComponentReport, Figures, Restart, RunReport
from squall.engine.state.windowing.event_time import STANDS


def print_summary(report: RunReport) -> None:
    """Print the report on stdout."""
    rate = report.acked / report.duration_secs if report.duration_secs else 0.0
    state = "drained" if report.drained else "stopped"
    totals, measured, failed = detail_blocks(report)
    outcome = f"{report.topology} {state} after {report.duration_secs:.2f} s"
    head = [
        f"{outcome}: {emitted_text(report)}; {rate:,.0f} acked/s",
        f"emit to ack: {latency_text(report.latency_ms)}", *count_lines(report), *totals,
    ]
    blocks: list[Block] = [head, components_grid(report)]
    deaths = [line for equal in equal_deaths(report.restarts) for line in _death_lines(equal)]
    if tail := [*measured, *deaths, *failed]:
        blocks.append(tail)
    print_blocks(blocks)


def warn_of_late(report: RunReport) -> None:
    """Warn on stderr if late tuples were dropped."""
    if report.late_dropped:
        note(f"WARNING: {next(count_lines(report))}")


def components_grid(report: Figures) -> Grid:
    """Show the components, each with its tasks, and its executors where they are fewer ("4/2")."""
    return Grid(
        ["component", "kind", "tasks", "executed", "emitted", "acked", "failed", "ms/tuple", "capacity"],
        [
            [
                name, row.kind, _tasks(row), row.executed, row.emitted, row.acked,
                alarm_cell(row.failed), millis(row.execute_latency_ms), row.capacity,
            ]
            for name, row in report.components.items()
        ],
    )


def _tasks(row: ComponentReport) -> str:
    executors = getattr(row, "executors", row.tasks)
    return f"{row.tasks}" if executors == row.tasks else f"{row.tasks}/{executors}"


def _death_lines(equal: list[Restart]) -> list[str]:
    restart, again = equal[-1], "not ready again"
    if restart.ready_after_secs is not None:
        again = f"ready again after {restart.ready_after_secs * 1000:.1f} ms"
    if restart.working_after_secs is not None:
        again += f", at work after {restart.working_after_secs * 1000:.1f} ms"
    memory = f" (it held {restart.rss_bytes / 2**20:,.0f} MiB)" if restart.rss_bytes else ""
    workers, died = len({death.slot for death in equal}), f"died at {restart.at_secs:.2f} s"
    if len(equal) > 1:
        died = f"died {len(equal):,} times, first at {equal[0].at_secs:.2f} s, last at {restart.at_secs:.2f} s"
    who = f"worker {restart.slot}" if workers == 1 else f"{workers} workers, the last {restart.slot},"
    line = f"{who} {died}: {restart.reason}{memory}; {again}"
    return [line, *([f"    {restart.error.splitlines()[0]}"] if restart.error else [])]


def emitted_text(report: Figures) -> str:
    """"120 emitted (20 replayed) = 90 acked, ..."."""
    return f"{report.emitted:,} emitted ({report.replayed:,} replayed) = {account_text(report)}"


def detail_blocks(report: Figures) -> tuple[list[str], list[str], list[str]]:
    """Return three blocks of lines, which may be empty: details of the totals, components' own metrics, failures."""
    return (
        [*message_lines(report), *untracked_lines(report), *wait_lines(report)],
        [*metric_lines(report)],
        [*failure_lines(report), *never_acked_lines(report)],
    )


def account_text(report: Figures) -> str:
    """"90 acked, 10 failed, 0 dead letters, ...": the fates of the emits; the numbers add up to them."""
    parts = [f"{getattr(report, name):,} {name}" for name in ("acked", "failed")]
    parts.append(plural(report.dead_letters, "dead letter"))
    parts += [f"{report.waiting:,} waiting for a retry", f"{report.pending:,} pending"]
    parts += [f"{report.abandoned:,} abandoned"] if report.abandoned else []
    return ", ".join(parts)


def latency_text(latency: Mapping[str, float | None], names: Iterable[str] = ("p50", "p90", "p99", "max")) -> str:
    """"p50 1.25 ms, p90 -": a dash if nothing was acked."""
    return ", ".join(
        f"{name} -" if (millis := latency[name]) is None else f"{name} {millis:.2f} ms" for name in names
    )


def message_lines(report: Figures) -> Iterator[str]:
    """Tell the number of messages if it is not that of the attempts."""
    again = report.restarts or getattr(report, "restarts_total", None)
    if (again and report.emitted) or report.replayed:
        most = "at most " * bool(again)
        yield (
            f"messages: {most}{report.messages:,}, in {plural(report.emitted, 'attempt')}; "
            f"{report.unanswered:,} of them neither acked nor a dead letter"
        )


def untracked_lines(report: Figures) -> Iterator[str]:
    """Tell of messages that were not emitted again, and of tuples without a tree."""
    if report.unreplayed:
        count = report.unreplayed
        yield f"{plural(count, 'message')} failed and {'was' if count == 1 else 'were'} not emitted again"
    if report.untracked_emitted:
        yield f"{report.untracked_emitted:,} emitted without tracking: their spouts are not told what becomes of them"
    for name, component in report.components.items():
        flow = component.untracked
        if not flow.sent:
            continue
        text = f"untracked tuples for {name}: {flow.sent:,} sent, {flow.delivered:,} delivered"
        text += f", {flow.dropped:,} dropped" if flow.dropped else ""
        if flow.unprocessed:
            text += f", {flow.unprocessed:,} unprocessed"
        if flow.unknown:
            text += f", {flow.unknown:,} unknown: a worker that died had them, and may have executed some"
        yield text


def count_lines(report: Figures) -> Iterator[str]:
    """Tell of tuples that were late, or ahead of the clock, or may count twice."""
    where = {
        name: ", ".join(f"{value:,} in {component}" for component, own in report.metrics.items()
                        if isinstance(value := own.get(f"{name} tuples"), int) and value)
        for name in ("late", "ahead", "dropped late")
    }
    if count := report.late_dropped:
        yield (
            f"{plural(count, 'late tuple was', 'late tuples were')} dropped ({where['dropped late']}): "
            "with_late_stream gives them to a bolt, a longer with_lag waits for them"
        )
    if report.late > count:
        yield f"{plural(report.late, 'tuple was', 'tuples were')} late ({where['late']})"
    if count := report.ahead:
        yield (
            f"{plural(count, 'tuple was', 'tuples were')} too far ahead of the clock to move event time "
            f"({where['ahead']}): with_max_ahead says how far it may be"
        )
    for component, own in report.metrics.items():
        if "counts at least once" in own:
            yield f"{component} counts at least once: its ids name deliveries, so what is delivered again counts again"


def wait_lines(report: Figures) -> Iterator[str]:
    """Tell spouts' reasons to wait, and their share of the time."""
    for name, component in report.components.items():
        waits = sorted(component.waits.items(), key=lambda item: -item[1])
        limit = component.max_pending
        reasons = _WAITS | ({"pending_limit": f"for answers ({limit:,} may be open in a task)"} if limit else {})
        shown = ", ".join(f"{share:.0%} {reasons[reason]}" for reason, share in waits if share >= 0.005)
        if shown:
            yield f"{name} waited: {shown}"


_WAITS = {
    "pending_limit": "for answers (max_spout_pending)", "credit": "for room downstream", "retry": "to retry",
    "input": "for its source", "inactive": "to be activated",
}


def failure_lines(report: Figures) -> Iterator[str]:
    """Tell each component's failures by reason, and its last one, and what links lost."""
    for name, failures in report.failures.items():
        counts = ", ".join(f"{count:,} {reason}" for reason, count in failures.counts.items())
        last = failures.last[-1]
        where = f" in {last.component}[{last.task}]" if last.component else ""
        on = f" on {last.worker}" if last.worker else ""
        error = f": {last.error} {last.where}".rstrip() if last.error else ""
        # Without an attempt it was reported, and no message failed.
        message = f"message {last.message_id} of {last.spout}, " if last.attempt else ""
        attempt = f" (attempt {last.attempt})" if last.attempt else ""
        yield (
            f"failures of {name}: {counts}; the first at {failures.first_secs:.2f} s, the last at "
            f"{last.at_secs:.2f} s was {message}{last.reason}{where}{on}{error}{attempt}"
        )
        for equal in reversed(equal_failures(failures.last)):
            if equal[-1] is not last:
                yield f"    also, {len(equal)} of the last ones: {equal[-1].error} {equal[-1].where}".rstrip()
    if any(report.links.values()):
        yield "links: " + ", ".join(f"{count:,} {name}" for name, count in report.links.items())


def never_acked_lines(report: Figures) -> Iterator[str]:
    """Name bolts that ack nothing, if trees timed out."""
    for name, row in report.components.items():
        # A basic bolt acks by itself, and a bolt that holds tuples for a window acks some in the end.
        never = row.kind == "bolt" and row.executed and not (row.acked or row.failed)
        if never and report.timed_out:
            yield (
                f"{name} has never acked any of its {plural(row.executed, 'tuple')}, and "
                f"{plural(report.timed_out, 'tree')} timed out: a Bolt must ack each tuple "
                "(collector.ack); a BasicBolt need not"
            )


def metric_lines(report: Figures) -> Iterator[str]:
    """Show the components' own metrics."""
    for component, metrics in report.metrics.items():
        yield from (f"{component}: {name} = {_shown(value)}" for name, value in metrics.items() if name not in STANDS)


def _shown(value: object) -> str:
    """Show a counter, a gauge per task, or a histogram."""
    if not isinstance(value, dict):
        return f"{value:,}"
    return ", ".join(f"{key if isinstance(key, str) else f'task {key}'} {number:,.6g}" for key, number in value.items())
