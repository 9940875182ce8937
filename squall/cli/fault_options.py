"""Reads `--fault` and `--faults`, the faults of a run, and checks them before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from squall.cli.shown.output import note
from squall.engine.foreign.plain_text import plain
from squall.scheduler.faults.plan import Draft, Plan, PlanMistakes
from squall.scheduler.faults.view import View

EXIT_USAGE = 2


def read_faults(lines: Sequence[str], paths: Sequence[str], view: View, for_secs: float | None) -> Plan | None:
    """Make the plan of a run; None if it has no faults. Prints each mistake on its own line, and exits."""
    if not lines and not paths:
        return None
    draft = Draft()
    for path in paths:
        draft.add_file(Path(path))
    for number, line in enumerate(lines, 1):
        draft.add_line(line, "--fault" if len(lines) == 1 else f"--fault {number}")
    try:
        return draft.checked(view, for_secs)
    except PlanMistakes as error:
        for mistake in error.mistakes:
            note(f"squall: {plain(mistake)}")
        raise click.exceptions.Exit(EXIT_USAGE) from None
