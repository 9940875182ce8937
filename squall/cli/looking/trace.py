"""`squall trace` and `squall tap`: the way of one record, and tuples as they pass."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from squall.cli.cluster_access import directory_option, job_of
from squall.cli.interrupts import Interrupts
from squall.cli.options import Seconds, json_option
from squall.cli.output import note, say
from squall.cli.screen import Block, Grid, show
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import plural
from squall.ui.watching import Watching
from squall.ui.way import outcome_of, perfetto, ways_of

_POLL_SECS = 0.05
_LAST_SECS = 0.2
"""Time for workers to write what they have seen: they do so every few milliseconds."""


@contextmanager
def _watching(
    directory: str | None, name: str, secs: float, **what: Any
) -> Iterator[tuple[Watching, Iterator[list[Any]]]]:
    """Watch a topology. Gives also what each look finds, until the time is over or the user interrupts."""
    with Interrupts() as interrupts, job_of(directory, name) as job:
        watching = Watching(job, secs, kept=True, **what)

        def looks() -> Iterator[list[Any]]:
            until = time.monotonic() + secs
            while time.monotonic() < until and not interrupts.count:
                time.sleep(_POLL_SECS)
                watching.keep()
                yield watching.events()

        try:
            yield watching, looks()
        finally:
            watching.end()


@click.command("trace")
@click.argument("name")
@click.option("--message-id", metavar="ID", help="Follow the message with this id.")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE",
              help="Follow this share of the messages: 0.001 is one in 1,000.")
@click.option("--for", "secs", type=Seconds(0.1, 3600), default=10.0, show_default=True, metavar="SECS",
              help="How long to watch; a message with --message-id ends it sooner.")
@click.option("--perfetto", "perfetto_file", type=click.File("w", lazy=False), metavar="FILE",
              help="Write a trace for ui.perfetto.dev.")
@directory_option
@json_option
def trace_command(
    name: str, message_id: str | None, sample: float | None, secs: float, perfetto_file: TextIO | None,
    directory: str | None, as_json: bool,
) -> None:
    """Show the way of messages through a topology: each hop's time on the way, in the queue and in execute, retries and
    failures. Follows messages that are emitted from now on."""
    if (message_id is None) == (sample is None) or (sample is not None and math.isnan(sample)):
        raise UsageError("give either --message-id ID or --sample SHARE")
    what: dict[str, Any] = {"message_id": message_id} if sample is None else {"every": max(1, round(1 / sample))}
    events: list[Any] = []
    with _watching(directory, name, secs, **what) as (watching, looks):
        for look in looks:
            events += look
            if message_id is not None and any(event[0] == "acked" for event in look):
                break
        time.sleep(_LAST_SECS)
        events += watching.events()
    ways = ways_of(events, watching.component_of)
    if perfetto_file is not None:
        json.dump(perfetto(ways), perfetto_file)
    show(as_json, {"topology": name, "messages": ways}, _blocks(ways))
    if not ways:
        which = "message of the sample" if message_id is None else f"message {message_id!r:.80}"
        none = f"{name} emitted no {which} within {secs:g} s"
        if message_id is not None:
            raise ClusterError(none)
        note(none)


def _blocks(ways: list[dict[str, Any]]) -> list[Block]:
    blocks: list[Block] = []
    for way in ways:
        for number, attempt in enumerate(way["attempts"], 1):
            again = f", attempt {number}" if len(way["attempts"]) > 1 else ""
            of_message = f"message {way['message_id']} of {way['spout']}[{way['task']}]{again}"
            blocks += [f"{of_message}: {outcome_of(attempt)}", _hops(attempt["hops"])]
    return blocks


def _hops(hops: list[dict[str, Any]]) -> Grid:
    children: dict[int | None, list[int]] = {}
    for index, hop in enumerate(hops):
        children.setdefault(hop["parent"], []).append(index)
    rows: list[list[Any]] = []

    def add(parent: int | None, depth: int) -> None:
        for index in children.get(parent, ()):
            hop = hops[index]
            stream = "" if hop["stream"] == "default" else f" {hop['stream']}"
            failed = ", failed" if hop["failed"] else ""
            rows.append([
                f"{'  ' * depth}{hop['from']}[{hop['from_task']}] -> {hop['to']}[{hop['to_task']}]{stream}{failed}",
                hop["tuples"], *(_ms(hop[key]) for key in ("began_ms", "transport_ms", "queue_ms", "execute_ms")),
            ])
            add(index, depth + 1)

    add(None, 0)
    return Grid(["hop", "tuples", "after ms", "transport ms", "queue ms", "execute ms"], rows)


def _ms(millis: float | None) -> str:
    return "-" if millis is None else f"{millis:,.3f}"


@click.command("tap")
@click.argument("name")
@click.argument("component")
@click.option("--per-sec", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="Show at most so many tuples of each worker a second.")
@click.option("--for", "secs", type=Seconds(0.1, 3600), default=3600.0, metavar="SECS",
              help="How long to watch (default: until Ctrl-C, at most an hour).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
@directory_option
def tap_command(
    name: str, component: str, per_sec: int, secs: float, as_json: bool, directory: str | None
) -> None:
    """Show tuples that COMPONENT emits, as they pass; what it executes, if nothing reads what it emits."""
    what = {"component": component, "most_per_sec": per_sec}
    with _watching(directory, name, secs, **what) as (_, looks):
        count = 0
        for kind, _, *event in itertools.chain.from_iterable(looks):
            if kind == "tuple":
                count += 1
                task, stream, values, how = event
                row = {"component": component, "task": task, "stream": stream, "values": values, "how": how}
                say(json.dumps(row) if as_json else f"{component}[{task}] {how} {stream}: {values}")
    note(f"{plural(count, 'tuple')} shown")
