"""`squall inject`, `heal` and `faults`: break something in a running cluster, mend it, list what can be broken."""

from __future__ import annotations

from dataclasses import asdict

import click
import msgspec

from squall.cli.cluster_access import directory_option, nimbus_of
from squall.cli.options import json_option
from squall.cli.output import say, say_json
from squall.cli.screen import show
from squall.engine.foreign.text import plural
from squall.scheduler.client.described import who
from squall.scheduler.client.nimbus_client import START_SECS
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.sentence import parse


@click.command("inject")
@click.argument("fault")
@click.argument("words", nargs=-1, metavar="[TARGET]... [NAME=VALUE]...")
@click.option("--for", "duration", metavar="TIME", help="How long it lasts: 500ms, 3s, 2m (see squall faults).")
@directory_option
@json_option
def inject_command(
    fault: str, words: tuple[str, ...], duration: str | None, directory: str | None, as_json: bool
) -> None:
    """Break something in a running cluster on purpose, now. `squall faults` lists what can be broken.

    TARGET is a worker (node-1:6700), a component (count), a task (count[0]), a node (node-1), nimbus,
    supervisor NODE or forking-parent NODE; `random worker` draws one. Workers that are still to start are waited for. A
    lasting fault ends by itself, or by squall heal.
    """
    meant = parse(" ".join([fault, *words, *(("for", duration) if duration is not None else ())]))
    with nimbus_of(directory) as client:
        begun = client.inject(meant, START_SECS)
    lasts = max((one.ends_secs - one.began_secs for one in begun), default=0.0)
    text = f"{meant.kind}: {who(begun)}"
    if lasts:
        by_default = "" if meant.for_secs is not None else " (its default; --for sets another time)"
        text += f", for {lasts:g} s{by_default}; squall heal ends it"
    show(as_json, {"kind": meant.kind, "lasts_secs": lasts, "faults": msgspec.to_builtins(begun)}, text)


@click.command("heal")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@directory_option
def heal_command(targets: tuple[str, ...], directory: str | None) -> None:
    """End every fault that is in force; with TARGETs only faults that were begun with exactly these."""
    with nimbus_of(directory) as client:
        ended = client.heal(targets)
    kinds = ", ".join(dict.fromkeys(fault.kind for fault in ended))
    begun_with = f" that was begun with {' '.join(targets)!r}" if targets else ""
    text = f"healed: {plural(len(ended), 'fault')}, {kinds}" if ended else f"no fault{begun_with} is in force"
    say(text)


@click.command("faults")
@json_option
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
            default = "" if parameter.default is None else f", default {parameter.default}"
            say(f"    {parameter.name}=: {parameter.meaning} ({parameter.allowed}{default})")
        lasts = "over at once" if kind.lasts_secs is None else f"lasts {kind.lasts_secs:g}s unless `for` says otherwise"
        say(f"    {lasts}; then {kind.undo}{'; takes a probability' if kind.is_drawn else ''}")
