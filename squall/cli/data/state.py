"""`squall state`: shows what the bolts of a topology keep, and takes it out or puts it back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from squall.cli.cluster_access import directory_option
from squall.cli.options import SomePath, json_option
from squall.cli.output import say
from squall.cli.screen import Grid, show
from squall.engine.errors import UsageError
from squall.engine.plural import plural
from squall.engine.state.reading import components_with_state, count_of, import_rows, rows_of, task_of
from squall.ipc.private import naming
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import cluster_path

_SHOWN = 20
"""Keys of a component that are shown."""


@click.command("state")
@click.argument("topology")
@click.argument("component", required=False)
@click.option("--export", "export_path", type=SomePath(), help="Write every key as a line of JSON, or as Parquet.")
@click.option("--import", "import_path", type=SomePath(), help="Set what an exported file of JSON lines holds.")
@directory_option
@json_option
def state_command(
    topology: str, component: str | None, export_path: str | None, import_path: str | None, directory: str | None,
    as_json: bool,
) -> None:
    """Show the state of TOPOLOGY's bolts, or the first keys of COMPONENT.

    What is shown or exported is what was committed last, while the topology runs or after it has stopped. A file whose
    name ends with .parquet is written with pyarrow. The topology must not run while its state is imported.
    """
    root = RunDir.open(cluster_path(directory)).topology_state(topology)
    if import_path is not None:
        with open(import_path, "rb") as file:
            count = import_rows(root, file)
        show(as_json, {"imported": count}, [f"{plural(count, 'key')} imported into {topology}"])
        return
    known = components_with_state(root)
    if not known or component not in (None, *known):
        there = f"with state: {', '.join(sorted(known)) or 'none'}" if root.exists() else "no such topology ran there"
        raise UsageError(
            f"no {'bolt' if component is None else repr(component)} of {topology!r:.80} has state in {root}; {there}"
        )
    if export_path is not None:
        with naming(export_path):
            count = _export(Path(export_path), rows_of(root, component))
        show(as_json, {"exported": count, "file": export_path}, [f"{plural(count, 'key')} exported to {export_path}"])
    elif component is not None:
        rows = list(itertools.islice(rows_of(root, component), None if as_json else _SHOWN))
        show(as_json, {"keys": rows}, [Grid(("task", "key", "value"), [
            [row["task"], json.dumps(row["key"])[:60], json.dumps(row["value"])[:60]] for row in rows
        ])])
        if len(rows) == _SHOWN and not as_json:
            say("and perhaps more; --export FILE has all")
    else:
        places = [
            {"component": name, "task": task_of(path), "keys": count_of(path), "bytes": path.stat().st_size}
            for name, paths in known.items() for path in paths
        ]
        show(as_json, {"tasks": places}, [Grid(("component", "task", "keys", "bytes"), [
            [*place.values()] for place in places
        ])])


def _export(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    if path.suffix != ".parquet":
        with open(path, "w", encoding="utf-8") as file:
            return sum(1 for row in rows if file.write(json.dumps(row) + "\n"))
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError('a .parquet file needs pyarrow: pip install "squall[spark]"') from None
    found = [{**row, "key": json.dumps(row["key"]), "value": json.dumps(row["value"])} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(found), path)
    return len(found)
