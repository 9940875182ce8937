"""`squall dead-letters`: lists dead letters, and gives them back to the topology."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from squall.cli.options import SomePath, json_option
from squall.cli.output import note
from squall.cli.screen import Grid, show
from squall.engine.errors import UsageError
from squall.engine.plural import plural
from squall.engine.report.document import to_document
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import DIRECTORY_VARIABLE
from squall.scheduler.records.dead_letters import DeadLetter, DeadLetters
from squall.scheduler.records.topology_files import find_dead_letters

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
