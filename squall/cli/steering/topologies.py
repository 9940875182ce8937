"""The commands on topologies of the standing cluster: list, activate, deactivate, rebalance, reset, kill, and clean, on
what those that are gone have left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click

from squall.cli.cluster_access import (
    directory_option,
    job_of,
    left_document,
    left_pending,
    nimbus_of,
    tell_away,
    tell_unknown,
)
from squall.cli.interrupts import Interrupts
from squall.cli.looking.status import replaced_text
from squall.cli.options import json_option, wait_option
from squall.cli.output import note, say
from squall.cli.screen import Block, Grid, alarm_cell, show, state_cell
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.engine.report.document import with_schema
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import status_of
from squall.scheduler.client.job import Gone
from squall.scheduler.client.nimbus_client import NoCluster
from squall.scheduler.client.standing import limit_secs, open_cluster, patient_client, uptime_secs
from squall.scheduler.client.statuses import ListedTopology, TopologyList
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus.store import kept_topologies
from squall.scheduler.nimbus.submission import WORKERS_MAX
from squall.scheduler.records.topology_files import TopologyFiles, topology_files

_MOST_DIGITS = 9
"""Most digits in a number of executors. Nimbus knows the limit, but a message holds no integer beyond 64 bits."""


@click.command("list")
@directory_option
@json_option
def list_command(directory: str | None, as_json: bool) -> None:
    """List the topologies of the cluster. Exit code 1 if the store knows none although there are remains of some."""
    rows: list[ListedTopology] = []
    with nimbus_of(directory) as client:
        cluster = client.get_cluster()
        for record in cluster.topologies:
            try:
                state = client.get_topology(record.name)
            except UsageError:
                # It was removed between the two requests.
                continue
            rows.append(ListedTopology(
                name=record.name, id=record.id, status=status_of(client, record),
                replaced_by=None if record.successor is None else record.successor.topology.id,
                tasks=sum(component.tasks for component in record.components),
                executors=0 if state.assignment is None else sum(map(len, state.assignment.executors)),
                workers=len(state.workers), workers_ready=list(state.workers.values()).count("ready"),
                workers_wanted=record.conf["workers"], restarts=state.restarts_total,
                uptime_secs=round(uptime_secs(record), 1),
            ))
    tell_unknown(cluster.unknown)
    shown = [
        [row.name, state_cell(row.status), row.tasks, row.executors, f"{row.workers_ready}/{row.workers_wanted}",
         alarm_cell(row.restarts), round(row.uptime_secs)]
        for row in rows
    ]
    head = ["topology", "status", "tasks", "executors", "workers", "restarts", "uptime s"]
    replaced = [replaced_text(row.name, row.replaced_by) for row in rows if row.replaced_by]
    blocks: list[Block] = [Grid(head, shown), *replaced] if rows else ["no topologies"]
    show(as_json, with_schema("list", TopologyList(rows)), blocks)
    if cluster.unknown and not rows:
        # The store was lost: a script that asks whether anything runs must not read that nothing does.
        raise click.exceptions.Exit(1)


@click.command("activate")
@click.argument("name")
@directory_option
def activate_command(name: str, directory: str | None) -> None:
    """Let a topology's spouts emit again."""
    with nimbus_of(directory) as client:
        say(f"{name} is {client.activate(name).status}")


@click.command("deactivate")
@click.argument("name")
@directory_option
def deactivate_command(name: str, directory: str | None) -> None:
    """Stop a topology's spouts; what is under way is processed."""
    with nimbus_of(directory) as client:
        say(f"{name} is {client.deactivate(name).status}")


@click.command("reset")
@click.argument("name")
@directory_option
def reset_command(name: str, directory: str | None) -> None:
    """Start the FAILED slots of a topology anew; slots that gave it up may run it again.

    Workers that run are not touched; their earlier deaths no longer count against them.
    """
    with nimbus_of(directory) as client:
        given_up = [str(slot) for slot in client.get_topology(name).topology.given_up]
        client.reset(name)
    tried = f"{', '.join(given_up)} may be used again" if given_up else "no slot had given it up"
    say(f"{name} is reset: {tried}")


@click.command("rebalance")
@click.argument("name")
@click.option("-n", "--workers", type=click.IntRange(1, WORKERS_MAX), help="Worker processes.")
@click.option("-e", "--executors", multiple=True, metavar="COMPONENT=N",
              help="Executors of a component, at most one per task.")
@click.option("-t", "--tasks", multiple=True, metavar="COMPONENT=N",
              help="Tasks of a component, among which its state is dealt anew.")
@wait_option
@directory_option
@json_option
def rebalance_command(
    name: str, workers: int | None, executors: tuple[str, ...], tasks: tuple[str, ...], wait_secs: float | None,
    directory: str | None, as_json: bool,
) -> None:
    """Spread a topology anew: drain it, then replace its workers. Tasks keep their state; spouts go on where they were.

    Without -n, -e and -t it is spread over as many workers as it asked for, on the slots that are free now. With -t it
    is replaced by itself, as by squall submit --replace: it gets another id, and its counts begin at 0.
    """
    parallelism = dict(_pair("-e", text) for text in executors)
    numbers = dict(_pair("-t", text) for text in tasks)
    with job_of(directory, name) as job:
        limit, began = limit_secs(wait_secs, job.record), time.monotonic()
        wanted = job.record.conf["workers"] if workers is None else workers
        pending = job.rebalance(wanted, parallelism, limit, numbers)
        view = job.view()
        slots = [] if view is None else [str(slot) for slot in view.assignment.workers]
        left = left_pending(pending, limit, time.monotonic() - began)
    lines = [f"{name} runs on {plural(len(slots), 'worker')}: {', '.join(slots)}; {left}"]
    if len(slots) < wanted:
        lines.append(f"{plural(wanted, 'worker')} were asked for: there are no more slots, or no more executors")
    show(as_json, {"name": name, "workers": slots, "workers_wanted": wanted, **left_document(pending)}, [lines])


def _pair(option: str, text: str) -> tuple[str, int]:
    component, equals, number = text.rpartition("=")
    if not equals or not component or not number.isdecimal() or len(number) > _MOST_DIGITS:
        raise UsageError(f"{option} {text!r} is not understood; write COMPONENT=N, e.g. {option} count=2")
    return component, int(number)


@click.command("kill")
@click.argument("name", required=False)
@click.option("--unknown", is_flag=True,
              help="Stop the workers and remove the files of topologies that the store does not know.")
@wait_option
@directory_option
@json_option
def kill_command(
    name: str | None, unknown: bool, wait_secs: float | None, directory: str | None, as_json: bool
) -> None:
    """Stop a topology's spouts, wait until nothing is pending, then remove it. Ctrl-C ends the wait. A topology that
    was to replace it is dropped.

    With --unknown instead of NAME: topologies that squall list calls unknown. They are not drained; their dead letters
    and their tasks' state stay.
    """
    if unknown == (name is not None):
        raise UsageError("give either the NAME of a topology or --unknown")
    if name is None:
        with nimbus_of(directory) as client:
            ids = client.forget_unknown()
        show(as_json, {"unknown": ids}, f"removed: {', '.join(ids)}" if ids else "nothing is unknown")
        return
    with Interrupts() as interrupts, job_of(directory, name) as job:
        limit, began = limit_secs(wait_secs, job.record), time.monotonic()
        try:
            pending = job.kill(limit, lambda: interrupts.count > 0)
        except Gone:
            # What it left, the command that removed it has told.
            gone = {"name": name, "id": job.id, "pending": None, "waiting": None, "untracked_unexecuted": None}
            show(as_json, gone, f"{name} is gone: another command has removed it, or it has left by itself")
            return
    if job.record.successor is not None:
        note(f"{job.record.successor.topology.id}, which was to take its place, is dropped")
    document = {"name": name, "id": job.id, **left_document(pending)}
    show(as_json, document, f"{name} is gone; {left_pending(pending, limit, time.monotonic() - began)}")
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)


@click.command("clean")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Remove it; without this option it is only listed.")
@click.option("--dead-letters", is_flag=True, help="Remove also state with dead letters.")
@directory_option
@json_option
def clean_command(
    names: tuple[str, ...], remove: bool, dead_letters: bool, directory: str | None, as_json: bool
) -> None:
    """List logs and state that topologies that are gone have left, and --remove them.

    State holds positions and dead letters: without it a topology of that name begins anew. State with dead letters is
    kept unless --dead-letters is given, as it alone answers for those messages. Topologies in the cluster are left
    alone, also if it does not run: then they go on with the next squall up.
    """
    if dead_letters and not remove:
        raise UsageError("--dead-letters says what may be removed: give --remove as well")
    with _topologies(directory) as (run_dir, records, unknown), CodeStore(run_dir.code).alone():
        every = topology_files(run_dir, records)
        if remove and unknown:
            raise UsageError(
                f"the store does not know {', '.join(unknown)}, so nothing is known to be gone; "
                "`squall kill --unknown` comes first"
            )
        now = time.time()
        found = [one for one in every if not names or one.name in names]
        if missing := sorted({*names} - {one.name for one in found}):
            what = f"{', '.join(missing)!r:.200}"
            raise UsageError(f"there is nothing to remove of {what}: it is in the cluster, or has left nothing behind")
        kept = [one for one in found if remove and one.dead_letters and not dead_letters]
        for one in found if remove else ():
            if one not in kept:
                one.remove()
    rows = [_row(one, now, remove and one not in kept) for one in found]
    show(as_json, rows, _text(found, now, remove, len(kept)))
    if kept:
        letters = plural(sum(one.dead_letters for one in kept), "dead letter")
        note(f"kept: {plural(len(kept), 'directory', 'directories')} with {letters}; see --dead-letters")


@contextlib.contextmanager
def _topologies(directory: str | None) -> Iterator[tuple[RunDir, list[TopologyRecord], list[str]]]:
    """Give the cluster's directory, its topologies, and ids that its store does not know. If the cluster does not run,
    these are the stored topologies, and it cannot start meanwhile."""
    run_dir = open_cluster(directory)
    try:
        client = patient_client(run_dir, tell_away)
    except NoCluster:
        with kept_topologies(run_dir) as records:
            yield run_dir, records, []
        return
    with client:
        cluster = client.get_cluster()
        yield run_dir, cluster.topologies, cluster.unknown


def _age(one: TopologyFiles, now: float) -> float:
    return max(0.0, now - one.changed_unix_secs)


def _row(one: TopologyFiles, now: float, removed: bool) -> dict[str, object]:
    return {
        "name": one.name, "kind": one.kind, "path": str(one.path), "bytes": one.bytes,
        "unchanged_secs": round(_age(one, now), 1), "dead_letters": one.dead_letters,
        "removed": removed,
    }


def _text(found: list[TopologyFiles], now: float, remove: bool, kept: int) -> list[Block]:
    if not found:
        return ["nothing is left of topologies that are gone"]
    head = ["topology", "what", "KiB", "unchanged h", "dead letters", "path"]
    rows = [
        [one.name, one.kind, -(-one.bytes // 1024), round(_age(one, now) / 3600, 2),
         alarm_cell(one.dead_letters), str(one.path)]
        for one in found
    ]
    did = f"{len(found) - kept} of {plural(len(found), 'directory', 'directories')} removed"
    return [Grid(head, rows), did if remove else "squall clean --remove removes them"]
