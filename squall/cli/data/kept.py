"""What the tasks of a topology keep: `squall state` shows what bolts do, and takes it out or puts it back; `squall
dead-letters` lists the messages that were given up, and gives them back."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from squall.cli.cluster_access import directory_option
from squall.cli.options import SomePath, json_option
from squall.cli.output import note, say
from squall.cli.screen import Grid, show
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.engine.report.document import to_document
from squall.engine.state.reading import components_with_state, count_of, import_rows, rows_of, task_of
from squall.ipc.private import naming
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import DIRECTORY_VARIABLE, cluster_path
from squall.scheduler.records.dead_letters import DeadLetter, DeadLetters
from squall.scheduler.records.topology_files import find_dead_letters

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


_EXIT_DAMAGED = 1
_VALUES_SHOWN, _ERROR_SHOWN = 32, 80
"""Most characters shown of a message id and of values, and of an error; --json has all of them."""


@click.command("dead-letters")
@click.argument("topology")
@click.option(
    "--dir", "directory", type=SomePath(),
    help=f"Run directory (default: that of TOPOLOGY's newest, in ${DIRECTORY_VARIABLE} or the usual places).",
)
@click.option("--replay", is_flag=True, help="Give them back: the topology's spouts emit them again.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this letter.")
@json_option
def dead_letters_command(
    topology: str, directory: str | None, replay: bool, ids: tuple[str, ...], as_json: bool
) -> None:
    """List the messages of TOPOLOGY that were given up after too many failures, or give them back.

    A letter that is given back is emitted by its spout task as soon as the topology runs in the same directory; nothing
    is held against it any more. A damaged line of the ledger is named on stderr, and makes the exit code 1.
    """
    run_dir = _run_dir(topology, directory)
    ledger = DeadLetters(run_dir.topology_state(topology))
    found, damage = ledger.look()
    letters = ledger.give_back(ids) if replay else ledger.chosen(found, ids)
    document = {
        "topology": topology, "dir": str(run_dir.path), "given_back": replay,
        "letters": list(map(to_document, letters)), "damaged": damage,
    }
    did = f"{len(letters)} given back to" if replay else f"{plural(len(letters), 'dead letter')} of"
    show(as_json, document, [*([grid_of(letters)] if letters else []), f"{did} {topology} in {run_dir.path}"])
    if replay and not ids:
        tell_why_they_stay((letter.id, ledger.why_not(letter)) for letter in ledger.read())
    if damage:
        note(*damage)
        click.get_current_context().exit(_EXIT_DAMAGED)


def _run_dir(topology: str, directory: str | None) -> RunDir:
    if directory is None:
        directory = os.environ.get(DIRECTORY_VARIABLE)
        found = find_dead_letters(topology, Path(directory) if directory else None)
        if found is not None:
            return found
        if not directory:
            raise UsageError(f"no run directory holds dead letters of {topology!r:.80}; name one with --dir")
    run_dir = RunDir.open(directory)
    state = run_dir.topology_state(topology)
    if not state.is_dir():
        known = sorted(entry.name for entry in Path(state.parent).iterdir()) if state.parent.is_dir() else []
        names = ", ".join(known) or "none"
        raise UsageError(f"{run_dir.path} has no topology {topology!r:.80}; topologies: {names}")
    return run_dir


def grid_of(letters: list[DeadLetter]) -> Grid:
    """A table of letters."""
    # An id that is cut cannot be given to a command.
    return Grid(("id", "when", "spout", "message id", "values", "last failure"), [
        [
            letter.id, letter.at[:19], f"{letter.spout}[{letter.task_index}]",
            _short(letter.message_id, _VALUES_SHOWN), _short(letter.values, _VALUES_SHOWN), _failure(letter),
        ]
        for letter in letters
    ], whole=(0, 1))


def _failure(letter: DeadLetter) -> str:
    where = f" in {letter.component}[{letter.task}]" if letter.component else ""
    on = f" on {letter.worker}" if letter.worker else ""
    error = f": {_short(letter.error, _ERROR_SHOWN)}" if letter.error else ""
    return f"{letter.reason}{where}{on}{error} (attempt {letter.attempt})"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def tell_why_they_stay(letters: Iterable[tuple[str, str]]) -> None:
    for letter_id, why_not in letters:
        if why_not:
            note(f"{letter_id} cannot be given back: {why_not}")
