"""The common parts of the commands for a standing cluster: its directory, its Nimbus, what was left pending."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import click

from squall.cli.options import SomePath
from squall.cli.output import note
from squall.engine.foreign.text import plural
from squall.engine.report.metrics import Unfinished
from squall.ipc.private import naming
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient
from squall.scheduler.client.standing import DIRECTORY_VARIABLE, cluster_path, connect_to, job_named

C = TypeVar("C", bound=Callable[..., Any])


def directory_option(command: C) -> C:
    """Add an option for the cluster's directory. An OS error that names no file then names this directory."""

    @functools.wraps(command)
    def naming_directory(*arguments: Any, directory: str | None, **options: Any) -> Any:
        try:
            return command(*arguments, directory=directory, **options)
        except OSError as error:
            with naming(cluster_path(directory)):
                raise error from None

    return click.option(
        "--dir", "directory", type=SomePath(), envvar=DIRECTORY_VARIABLE,
        help=f"Directory of the cluster (default: ${DIRECTORY_VARIABLE}, or one per user).",
    )(cast("C", naming_directory))


def tell_away() -> None:
    """Tell the user that Nimbus is waited for."""
    note(f"Nimbus is away, waiting for it for up to {AWAY_PATIENCE_SECS:g} s")


def nimbus_of(directory: str | None) -> NimbusClient:
    """Connect to the running cluster that the user chose."""
    return connect_to(directory, tell_away)


@contextlib.contextmanager
def job_of(directory: str | None, name: str) -> Iterator[Job]:
    """Connect to a topology of the running cluster that the user chose."""
    with nimbus_of(directory) as client, contextlib.closing(job_named(client, name)) as job:
        yield job


def left_pending(left: Unfinished, limit: float, waited_secs: float) -> str:
    """The messages left by a drain, for people. A wait shorter than the limit was interrupted or ended by a command."""
    parts = []
    if left:
        short = waited_secs < limit
        when = f"when the wait of at most {limit:g} s was cut short" if short else f"at the limit of {limit:g} s"
        parts.append(f"{plural(left, 'message was', 'messages were')} pending {when}")
    if left.waiting:
        held = f"{plural(left.waiting, 'failed message')} waited for a retry"
        parts.append(held if left else f"nothing was pending, but {held}")
    text = f"{' and '.join(parts)}: {emitted_again(left + left.waiting)}" if parts else "nothing was pending"
    if left.untracked:
        were = plural(left.untracked, "untracked tuple was", "untracked tuples were")
        text += f"; since it was submitted {were} not executed, as far as is known: no spout emits such tuples again"
    return text


def emitted_again(count: int) -> str:
    """Say which sources emit `count` unfinished messages again."""
    return f"a source that can be read again emits {'it' if count == 1 else 'them'} again, any other does not"


def left_document(left: Unfinished) -> dict[str, int]:
    """Describe the messages left by a drain, for programs."""
    return {"pending": left, "waiting": left.waiting, "untracked_unexecuted": left.untracked}


def tell_unknown(ids: list[str]) -> None:
    """Name on stderr the topologies that Nimbus found and does not know."""
    for topology_id in ids:
        note(
            f"unknown: {topology_id} is not in the store; its workers and files are left alone, "
            f"`squall kill --unknown` ends and removes them"
        )
