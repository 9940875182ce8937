"""`squall faults`: lists the faults that can be injected."""

from __future__ import annotations

from typing import Any

import click

from squall.cli.shown.output import say, say_json
from squall.scheduler.common.duration import UNITS
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.kind import Kind, Parameter


@click.command("faults")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def faults_command(as_json: bool) -> None:
    """List every fault that can be injected, with its parameters and an example.

    For squall run --fault "LINE", the lines of a plan (squall run --faults PLAN.yaml), and squall inject.
    """
    if as_json:
        kinds = [_document(kind) for kind in CATALOGUE.values()]
        say_json({"faults": kinds, "units": UNITS})
        return
    group = ""
    for kind in CATALOGUE.values():
        if kind.group != group:
            say(*([""] if group else []), kind.group.upper())
            group = kind.group
        say("", f"{kind.name}: {kind.meaning}", f"    {kind.example}")
        say(f"    takes {kind.targets}")
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


def _document(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.name, "group": kind.group, "meaning": kind.meaning, "example": kind.example,
        "acts_on": str(kind.acts_on), "targets": kind.targets, "carried_out_by": str(kind.carrier),
        "lasts_secs": kind.lasts_secs, "undo": kind.undo, "takes_probability": kind.is_drawn,
        "one_of": list(kind.one_of),
        "parameters": [
            {
                "name": each.name, "type": each.type, "meaning": each.meaning, "default": each.default,
                "least": each.least, "most": each.most, "choices": list(each.choices), "allowed": each.allowed,
            }
            for each in kind.parameters
        ],
    }  # fmt: skip
