"""The commands on files: `clean` lists and removes what topologies that are gone have left, `repair` mends a store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click
from click.core import ParameterSource

from squall.cli.shown.output import note, say
from squall.cli.shown.screen import Block, Grid, alarm_cell, show
from squall.cli.standing import directory_option, json_option, tell_away
from squall.engine.errors import SquallError, UsageError
from squall.engine.plural import plural
from squall.ipc.rundir import RunDir
from squall.scheduler.client.nimbus_client import NoCluster
from squall.scheduler.client.standing import cluster_path, open_cluster, patient_client
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus import store_repair
from squall.scheduler.nimbus.store_repair import kept_topologies
from squall.scheduler.records.remains import Remains, copies, remains


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
    alone, also if it does not run: then they go on with the next squall up. Without --dir, also the copies that squall
    run has kept of dead letters.
    """
    if dead_letters and not remove:
        raise UsageError("--dead-letters says what may be removed; allowed: with --remove")
    with _left(directory) as (every, unknown):
        if remove and unknown:
            raise UsageError(
                f"the store does not know {', '.join(unknown)}, so nothing is known to be gone; "
                "`squall repair` or `squall kill --unknown` comes first"
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
def _left(directory: str | None) -> Iterator[tuple[list[Remains], list[str]]]:
    """What is left, and ids that the cluster's store does not know. No topology is submitted meanwhile."""
    chosen = click.get_current_context().get_parameter_source("directory")
    kept = [] if chosen is ParameterSource.COMMANDLINE else [one for one in copies() if not _goes_on(RunDir(one.path))]
    if directory is None and not cluster_path(None).exists():
        # Who only runs topologies, or has rebooted, has no cluster.
        yield kept, []
        return
    with _topologies(directory) as (run_dir, records, unknown), CodeStore(run_dir.code).alone():
        yield [*remains(run_dir, records), *kept], unknown


def _goes_on(copy: RunDir) -> bool:
    """Whether a cluster was started in a copy that has topologies, or a store that cannot be read."""
    if not copy.nimbus_db.exists():
        # No cluster was, and a look would write.
        return False
    try:
        with kept_topologies(copy) as records:
            return bool(records)
    except SquallError:
        return True


@contextlib.contextmanager
def _topologies(directory: str | None) -> Iterator[tuple[RunDir, list[TopologyRecord], list[str]]]:
    """The cluster's directory, its topologies, and ids that its store does not know. Of a cluster that does not run, as
    stored; none starts meanwhile."""
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


def _age(one: Remains, now: float) -> float:
    return max(0.0, now - one.changed_unix_secs)


def _row(one: Remains, now: float, removed: bool) -> dict[str, object]:
    return {
        "name": one.name, "kind": one.kind, "path": str(one.path), "bytes": one.bytes,
        "unchanged_secs": round(_age(one, now), 1), "dead_letters": one.dead_letters,
        "removed": removed,
    }


def _text(found: list[Remains], now: float, remove: bool, kept: int) -> list[Block]:
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


@click.command("repair")
@click.option("--empty", is_flag=True, help="Go on with an empty store; the old one is moved aside.")
@directory_option
def repair_command(empty: bool, directory: str | None) -> None:
    """Examine the store of a cluster whose Nimbus does not run, and say what is wrong; exit code 1 if something is.

    Nothing is ever deleted. Workers and files of topologies that the store does not know are left alone by Nimbus:
    squall list names them, squall kill --unknown ends and removes them.
    """
    run_dir = open_cluster(directory)
    if empty:
        aside = store_repair.begin_empty(run_dir)
        say(f"the store is empty; the files of the old one are in {aside}")
        return
    with kept_topologies(run_dir) as records:
        names = [record.name for record in records]
    say(f"the store is whole; topologies: {', '.join(names) or 'none'}")
