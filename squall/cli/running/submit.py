"""`squall submit`: hand a topology to a standing cluster."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from squall.cli.cluster_access import directory_option, emitted_again, nimbus_of
from squall.cli.interrupts import Interrupts
from squall.cli.load_child import load_apart
from squall.cli.loader import name_in_file
from squall.cli.options import TopologyOptions, json_option, target_options, wait_option
from squall.cli.output import exit_code, note, say_json
from squall.cli.report_text import print_summary, warn_of_late
from squall.cli.running.live import DeathNews
from squall.cli.screen import show
from squall.cli.settings import layers_of, settings_option
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.engine.report.document import with_schema
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import Interrupted, NimbusClient
from squall.scheduler.client.standing import replace_named
from squall.scheduler.client.topology_code import submit
from squall.scheduler.common.messages import TopologyRecord, TopologyState
from squall.scheduler.nimbus.submission import check_topology_name
from squall.scheduler.records.topology_files import left_by_earlier

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(TopologyOptions):
    """The options of `squall submit`, by the names of the command's parameters."""

    name: str | None
    workers: int | None
    inactive: bool
    fresh: bool
    replace: bool
    drop_windows: bool
    wait_secs: float | None
    until_drained: bool
    remove_when_drained: bool
    variables: tuple[str, ...]
    directory: str | None
    as_json: bool


@click.command("submit")
@target_options
@click.option("--name", help="Name of the topology in the cluster; needed unless a Flux file has one.")
@click.option("--workers", type=int, help="Worker processes (setting workers).")
@settings_option
@click.option("--inactive", is_flag=True, help="Have its spouts wait for squall activate.")
@click.option("--fresh", is_flag=True, help="Remove the state that an earlier one left.")
@click.option("--replace", is_flag=True,
              help="If a topology of this name is there, drain and remove it first; the new one takes up its state.")
@click.option("--drop-windows", is_flag=True, help="Drop open windows that were declared otherwise.")
@wait_option
@click.option("--until-drained", is_flag=True, help="Wait until it has finished, and print its report, as squall run.")
@click.option("--remove-when-drained", is_flag=True, help="Have it leave the cluster by itself when it has finished.")
@click.option("--env", "variables", multiple=True, metavar="NAME[=VALUE]",
              help="A variable for the workers; without VALUE, as it is set here.")
@directory_option
@json_option
def submit_command(**given: Any) -> None:
    """Run the topology in FILE on the standing cluster, until it is killed.

    FILE may also be a module (package.module) or a Flux file (.yaml), and NAME is a Topology, or a function that
    takes ARGS and returns one (default: topology). The code is imported in a process of its own first; nothing of a
    bad file reaches the cluster. Its tasks find the state directories that an earlier topology of the same name
    left, and so go on where that one stopped, unless --fresh is given. With --replace nothing happens to the old
    topology before the new one is accepted; then the cluster replaces it, whether or not this command lives on.
    With --until-drained the exit code is that of squall run; after an interrupt the topology runs on. Values of
    --env are kept in a file that only you can read, and are never shown.
    """
    options = SubmitOptions(**given)
    replace, wait_secs = options.replace, options.wait_secs
    if (name := options.name or name_in_file(options.target, list(options.arguments))) is None:
        raise UsageError("--name is missing: the name that the topology shall have in the cluster")
    check_topology_name(name)
    if options.inactive and options.until_drained:
        raise UsageError("--inactive and --until-drained: spouts that wait for squall activate are never exhausted")
    if wait_secs is not None and not replace:
        raise UsageError("--wait is for --replace: nothing else is waited for")
    layers = layers_of(options.settings, workers=options.workers, drop_windows=options.drop_windows or None)
    environment = dict(map(_variable, options.variables))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(nimbus_of(options.directory))
        run_dir = client.run_dir
        # Check before the import, which may take long; Nimbus checks again.
        if not replace and any(record.name == name for record in client.get_cluster().topologies):
            raise UsageError(
                f"a topology named {name!r} is there already: choose another name, --replace it, or kill it first"
            )
        code, config = load_apart(options.target, options.arguments, layers, options.app_dir, environment)
        # From here on there is something that must be finished, or be told of.
        interrupts = stack.enter_context(Interrupts())

        def ask() -> TopologyRecord:
            return submit(
                client, name, config, code, note, status="INACTIVE" if options.inactive else "ACTIVE",
                fresh=options.fresh, remove_when_drained=options.remove_when_drained, replace=replace,
                replace_wait_secs=wait_secs, env=environment,
            )

        takes_up = bool(left_by_earlier(run_dir, name)) and not options.fresh
        record = _in_place_of(client, name, ask, wait_secs, interrupts) if replace else ask()
        if options.until_drained:
            with contextlib.suppress(UsageError):  # it may have finished and left by now
                note(*_words(client, client.get_topology(name)))
            _follow(Job(client, record), interrupts, options.as_json)
        state = client.get_topology(name)
        lines = _words(client, state)
        if takes_up:
            where = run_dir.topology_state(name)
            lines.append(f"it takes up the state that an earlier {name} left in {where}; --fresh would have begun anew")
    assignment = state.assignment
    document = {
        "name": name, "id": state.topology.id, "status": state.topology.status, "workers_wanted": config.workers,
        "takes_up_state": takes_up,
        "workers": [] if assignment is None else [str(slot) for slot in assignment.workers],
    }
    show(options.as_json, document, [lines])


def _variable(text: str) -> tuple[str, str]:
    """A value of --env. No message quotes it, as it may be a secret."""
    name, equals, value = text.partition("=")
    if not _NAME.fullmatch(name):
        # Not the text: it may begin with a value.
        raise UsageError("--env: the name of a variable is missing or not allowed; write NAME=VALUE or NAME")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {name}: no such variable is set here; set it, or write {name}=VALUE")
    return name, value if equals else os.environ[name]


def _in_place_of(
    client: NimbusClient, name: str, ask: Callable[[], TopologyRecord], wait_secs: float | None, interrupts: Interrupts
) -> TopologyRecord:
    """Replace the topology of that name, and tell what it has left. An interrupt ends the command, not the work."""
    try:
        record, left = replace_named(client, name, ask, wait_secs, lambda: interrupts.count > 0)
    except Interrupted as interrupted:
        note(f"{interrupted}: squall status {name} shows it")
        raise click.exceptions.Exit(interrupts.exit_code) from None
    if left is not None and left + left.waiting:
        count = plural(left + left.waiting, "message")
        note(f"the {name} that was there left {count}: {emitted_again(left + left.waiting)}")
    return record


def _follow(job: Job, interrupts: Interrupts, as_json: bool) -> NoReturn:
    """Wait until the topology has finished, print its report, and end the command. Tell deaths on stderr meanwhile."""
    told = DeathNews()

    def on_wait() -> bool:
        note(*told.lines(job.known_deaths()))
        return interrupts.count > 0

    try:
        report = job.wait_until_drained(on_wait=on_wait)
        if not report.drained:
            note(f"{job.name} runs on; squall status {job.name} shows it")
            raise click.exceptions.Exit(interrupts.exit_code)
        warn_of_late(report)
        if as_json:
            say_json(with_schema("run", report))
        else:
            print_summary(report)
        if job.record.remove_when_drained:
            job.await_removed()
    finally:
        job.close()
    raise click.exceptions.Exit(exit_code(report, job.record.conf["fail_on_late"]))


def _words(client: NimbusClient, state: TopologyState) -> list[str]:
    """Say what happens next, and when."""
    name, wanted = state.topology.name, state.topology.conf["workers"]
    if state.assignment is None:
        slots = sum(len(ports) for ports in client.get_cluster().supervisors.values())
        waits = f"{name} waits: none of the cluster's {plural(slots, 'slot')} is free"
        return [f"{waits}; it starts by itself when a topology is killed or a supervisor joins"]
    fewer = len(state.assignment.workers)
    lines = [f"{name} runs on {plural(fewer, 'worker')}: {', '.join(map(str, state.assignment.workers))}"]
    if fewer < min(wanted, sum(len(worker) for worker in state.assignment.executors)):
        lines.append(f"{wanted} were asked for: it spreads out by itself when there are more slots")
    return lines
