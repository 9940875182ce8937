"""`squall rebalance`: move a topology to other workers, with other numbers of executors."""

from __future__ import annotations

import time

import click

from squall.cli.checks import whole
from squall.cli.standing import (
    directory_option,
    job_of,
    json_option,
    left_document,
    left_pending,
    limit_secs,
    show,
    wait_option,
)
from squall.engine.errors import UsageError
from squall.engine.plural import plural
from squall.scheduler.nimbus.submission import WORKERS_MAX

_MOST_DIGITS = 9
"""Of a number of executors: Nimbus knows the limit, but a message holds no integer of more than 64 bits."""


@click.command("rebalance")
@click.argument("name")
@click.option("-n", "--workers", type=int, callback=whole(1, WORKERS_MAX), help="Worker processes.")
@click.option("-e", "--executors", multiple=True, metavar="COMPONENT=N",
              help="Executors of a component, at most one per task.")
@wait_option
@directory_option
@json_option
def rebalance_command(
    name: str, workers: int | None, executors: tuple[str, ...], wait_secs: float | None, directory: str | None,
    as_json: bool,
) -> None:
    """Spread a topology anew: drain it, then replace its workers. Tasks keep their state; spouts go on where they were.

    Without -n and -e it is spread over as many workers as it asked for, on the slots that are free now.
    """
    parallelism = dict(_pair(text) for text in executors)
    with job_of(directory, name) as job:
        limit, began = limit_secs(wait_secs, job.record), time.monotonic()
        wanted = job.record.conf["workers"] if workers is None else workers
        pending = job.rebalance(wanted, parallelism, limit)
        view = job.view()
        slots = [] if view is None else [str(slot) for slot in view.assignment.workers]
        left = left_pending(pending, limit, time.monotonic() - began)
        text = f"{name} runs on {plural(len(slots), 'worker')}: {', '.join(slots)}; {left}"
        if len(slots) < wanted:
            text += f"\n{plural(wanted, 'worker')} were asked for: there are no more slots, or no more executors"
    show(as_json, {"name": name, "workers": slots, "workers_wanted": wanted, **left_document(pending)}, text)


def _pair(text: str) -> tuple[str, int]:
    component, equals, number = text.rpartition("=")
    if not equals or not component or not number.isdecimal() or len(number) > _MOST_DIGITS:
        raise UsageError(f"-e {text!r} is not understood; write COMPONENT=N, e.g. -e count=2")
    return component, int(number)
