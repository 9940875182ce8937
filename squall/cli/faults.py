"""`squall faults`: lists the faults that can be injected."""

from __future__ import annotations

from dataclasses import asdict

import click

from squall.cli.shown.output import say, say_json
from squall.scheduler.faults.catalogue import CATALOGUE, Kind, Parameter


@click.command("faults")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def faults_command(as_json: bool) -> None:
    """List every fault that can be injected, with its parameters and an example.

    For squall run --fault "LINE", the lines of a plan (squall run --faults PLAN.yaml), and squall inject.
    """
    if as_json:
        say_json({"faults": [asdict(kind) for kind in CATALOGUE.values()]})
        return
    group = ""
    for kind in CATALOGUE.values():
        if kind.group != group:
            say(*([""] if group else []), kind.group.upper())
            group = kind.group
        say("", f"{kind.name}: {kind.meaning}", f"    {kind.example}")
        say(f"    takes {kind.acts_on}")
        for parameter in kind.parameters:
            say(f"    {parameter_text(parameter)}")
        say(f"    {lasting_text(kind)}{'; takes a probability' if kind.is_drawn else ''}")


def parameter_text(parameter: Parameter) -> str:
    """One parameter on one line."""
    default = "" if parameter.default is None else f", default {parameter.default}"
    return f"{parameter.name}=: {parameter.meaning} ({parameter.allowed}{default})"


def lasting_text(kind: Kind) -> str:
    """How long a fault lasts, and what follows it."""
    when = "over at once" if kind.lasts_secs is None else f"lasts {kind.lasts_secs:g}s unless `for` says otherwise"
    return f"{when}; then {kind.undo}"
