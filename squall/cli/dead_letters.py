"""`squall dead-letters`: what was given up, and back with it into the topology."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.errors import UsageError
from ipc.rundir import RunDir
from scheduler.dead_letters import DeadLetter, DeadLetters
from scheduler.kept_state import find_dead_letters, names_with_dead_letters
from scheduler.topologies import with_near_name

_PLAIN_WIDTH = 160
_SHOWN_CHARACTERS = 60


@click.command("dead-letters")
@click.argument("topology")
@click.option("--dir", "directory", type=click.Path(), help="Run directory (default: where TOPOLOGY had some last).")
@click.option("--replay", is_flag=True, help="Give them back: the topology's spouts emit them again.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this letter.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def dead_letters(topology: str, directory: str | None, replay: bool, ids: tuple[str, ...], as_json: bool) -> None:
    """List the messages of TOPOLOGY that were given up after too many failures, or give them back.

    A letter that is given back is emitted by its spout task as soon as the topology runs in the same directory; nothing
    is held against it any more.
    """
    run_dir = _run_dir(topology, directory)
    ledger = DeadLetters(run_dir.topology_state(topology))
    if replay:
        letters = ledger.give_back(ids)
    else:
        letters = [letter for letter in ledger.read() if not ids or letter.id in ids]
    if as_json:
        document = {
            "topology": topology, "dir": str(run_dir.path), "given_back": replay,
            "letters": [letter.public() for letter in letters],
        }
        click.echo(json.dumps(document, indent=2))
        return
    _print(letters)
    if replay:
        click.echo(f"{len(letters)} given back to {topology} in {run_dir.path}")
        _warn_of_the_rest(ledger.read(), ids)
    else:
        click.echo(f"{len(letters)} dead letters of {topology} in {run_dir.path}")


def _run_dir(topology: str, directory: str | None) -> RunDir:
    if directory is None:
        found = find_dead_letters(topology)
        if found is None:
            hint = with_near_name(topology, names_with_dead_letters(), "name one with --dir")
            raise UsageError(f"no run directory holds dead letters of {topology!r:.80}; {hint}")
        return found
    run_dir = RunDir.open(directory)
    state = run_dir.topology_state(topology)
    if not state.is_dir():
        known = sorted(entry.name for entry in Path(state.parent).iterdir()) if state.parent.is_dir() else []
        hint = with_near_name(topology, known, f"it knows {', '.join(known) or 'none'}")
        raise UsageError(f"{run_dir.path} knows no topology {topology!r:.80}; {hint}")
    return run_dir


def _print(letters: list[DeadLetter]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    if not letters:
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("id", "when", "spout", "message id", "values", "last failure"):
        table.add_column(column, no_wrap=True)
    for letter in letters:
        where = f" in {letter.component}[{letter.task}]" if letter.component else ""
        on = f" on {letter.worker}" if letter.worker else ""
        why = f"{letter.reason}{where}{on}{': ' + letter.error if letter.error else ''} (attempt {letter.attempt})"
        row = (f"{letter.spout}[{letter.task_index}]", _short(letter.message_id), _short(letter.values), why)
        table.add_row(letter.id, letter.at[:19], *map(escape, row))
    console.print(table)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _warn_of_the_rest(left: list[DeadLetter], ids: tuple[str, ...]) -> None:
    for letter in left:
        if not ids and letter.why_no_payload:
            click.echo(f"{letter.id} cannot be given back: {letter.why_no_payload}", err=True)
