"""`squall dead-letters`: lists dead letters, and gives them back to the topology."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from squall.cli.checks import some_path
from squall.cli.output import note, say_json
from squall.cli.screen import print_blocks
from squall.cli.standing import closed_pipe_is_no_error
from squall.cli.tables import Grid
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import DIRECTORY_VARIABLE
from squall.scheduler.nimbus.topologies import with_near_name
from squall.scheduler.records.dead_letters import DeadLetter, DeadLetters
from squall.scheduler.records.kept_state import find_dead_letters, names_with_dead_letters

_EXIT_DAMAGED = 1
_PLAIN_WIDTH = 160
_SHOWN_CHARACTERS = 32
"""Most characters shown of a message id, and of values: leaves room for the error."""
_LEAST_ERROR = 40
"""Fewest characters shown of an error, even if the window is so narrow that lines wrap."""


@click.command("dead-letters")
@click.argument("topology")
@click.option(
    "--dir", "directory", type=click.Path(), callback=some_path,
    help=f"Run directory (default: that of TOPOLOGY's newest, in ${DIRECTORY_VARIABLE} or the usual places).",
)
@click.option("--replay", is_flag=True, help="Give them back: the topology's spouts emit them again.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this letter.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def dead_letters(topology: str, directory: str | None, replay: bool, ids: tuple[str, ...], as_json: bool) -> None:
    """List the messages of TOPOLOGY that were given up after too many failures, or give them back.

    A letter that is given back is emitted by its spout task as soon as the topology runs in the same directory; nothing
    is held against it any more. A damaged line of the ledger is named on stderr, and makes the exit code 1.
    """
    run_dir = _run_dir(topology, directory)
    ledger = DeadLetters(run_dir.topology_state(topology))
    found, damage = ledger.look()
    letters = ledger.give_back(ids) if replay else ledger.chosen(found, ids)
    if as_json:
        document = {
            "topology": topology, "dir": str(run_dir.path), "given_back": replay,
            "letters": [letter.public() for letter in letters], "damaged": damage,
        }
        say_json(document)
    else:
        did = f"{len(letters)} given back to" if replay else f"{plural(len(letters), 'dead letter')} of"
        said = f"{did} {plain(topology)} in {plain(run_dir.path)}"
        with closed_pipe_is_no_error():
            print_blocks([grid_of(letters), said] if letters else [said])
    if replay and not ids:
        tell_why_they_stay((letter.id, ledger.why_not(letter)) for letter in ledger.read())
    for line in damage:
        note(plain(line))
    if damage:
        click.get_current_context().exit(_EXIT_DAMAGED)


def _run_dir(topology: str, directory: str | None) -> RunDir:
    if directory is None:
        variable = os.environ.get(DIRECTORY_VARIABLE)
        named = Path(variable) if variable else None
        found = find_dead_letters(topology, named)
        if found is None:
            hint = with_near_name(topology, names_with_dead_letters(named), "name one with --dir")
            raise UsageError(f"no run directory holds dead letters of {topology!r:.80}; {hint}")
        return found
    run_dir = RunDir.open(directory)
    state = run_dir.topology_state(topology)
    if not state.is_dir():
        known = sorted(entry.name for entry in Path(state.parent).iterdir()) if state.parent.is_dir() else []
        hint = with_near_name(topology, known, f"topologies: {', '.join(known) or 'none'}")
        raise UsageError(f"{run_dir.path} has no topology {topology!r:.80}; {hint}")
    return run_dir


def grid_of(letters: list[DeadLetter]) -> Grid:
    rows = [_cells(letter) for letter in letters]
    head = ("id", "when", "spout", "message id", "values")
    before = sum(max(map(len, column)) + 2 for column in zip(head, *(cells for cells, _, _, _ in rows), strict=True))
    shown = []
    for cells, where, error, attempt in rows:
        left = max(_LEAST_ERROR, _PLAIN_WIDTH - before - len(where) - len(attempt))
        shown.append([*cells, where + _short(error, left) + attempt])
    # An id that is cut cannot be given to a command.
    return Grid((*head, "last failure"), shown, whole=(0, 1))


def _cells(letter: DeadLetter) -> tuple[tuple[str, ...], str, str, str]:
    """The short columns, and the parts of the long one: place, error and attempt."""
    where = f" in {letter.component}[{letter.task}]" if letter.component else ""
    on = f" on {letter.worker}" if letter.worker else ""
    spout = plain(f"{letter.spout}[{letter.task_index}]")
    cells = (letter.id, letter.at[:19], spout, _short(letter.message_id), _short(letter.values))
    colon = ": " if letter.error else ""
    return cells, plain(f"{letter.reason}{where}{on}{colon}"), letter.error, f" (attempt {letter.attempt})"


def _short(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    text = plain(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def tell_why_they_stay(letters: Iterable[tuple[str, str]]) -> None:
    for letter_id, why_not in letters:
        if why_not:
            note(plain(f"{letter_id} cannot be given back: {why_not}"))
