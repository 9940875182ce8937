"""The command on files: `clean` lists and removes what topologies that are gone have left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click

from squall.cli.cluster_access import directory_option, tell_away
from squall.cli.options import json_option
from squall.cli.output import note
from squall.cli.screen import Block, Grid, alarm_cell, show
from squall.engine.errors import UsageError
from squall.engine.plural import plural
from squall.ipc.rundir import RunDir
from squall.scheduler.client.nimbus_client import NoCluster
from squall.scheduler.client.standing import open_cluster, patient_client
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus.store import kept_topologies
from squall.scheduler.records.topology_files import TopologyFiles, topology_files


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
