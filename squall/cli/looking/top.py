"""`squall top`: a topology live in the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click

from squall.cli.cluster_access import directory_option, job_of
from squall.cli.looking.status_text import headline
from squall.cli.options import Seconds
from squall.cli.screen import is_terminal
from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.standing import open_cluster


@click.command("top")
@click.argument("name")
@click.option("--interval", "interval_secs", type=Seconds(0.05, 3600), default=1.0, show_default=True, metavar="SECS",
              help="Time between two looks, over which rates are measured.")
@directory_option
def top_command(name: str, interval_secs: float, directory: str | None) -> None:
    """Show the components of a topology live: rates, capacity, queues, errors. Keys: 1 to 0 sort by a column, Enter
    shows a component's executors and errors, q quits. Needs the extra `ui`."""
    try:
        from squall.ui.top_screen import Top
    except ModuleNotFoundError:
        raise UsageError("squall top needs Textual: pip install 'squall[ui]'") from None
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError("squall top needs a terminal; `squall status` prints one look")
    @contextlib.contextmanager
    def opened() -> Iterator[tuple[RunDir, Job]]:
        with job_of(directory, name) as job:
            yield open_cluster(directory), job

    with opened():  # an unknown name is refused before there is a screen
        pass
    Top(opened, headline, interval_secs).run()
