"""`squall ui`: the web page of a standing cluster; `squall thrift`: Storm's Nimbus interface to it."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import click

from squall.cli.cluster_access import directory_option
from squall.cli.interrupts import Interrupts
from squall.cli.options import SomePath
from squall.cli.output import note, say
from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import open_cluster

_START_SECS, _LOOK_SECS = 60.0, 0.02
ui_port_option = click.option(
    "--ui-port", type=click.IntRange(1, 65535), metavar="N", help="Port of the web page (default: 8090, or the next)."
)


@click.command("ui")
@directory_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port (default: 8090, or the next free one).")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option("--tls-cert", type=SomePath(path_type=Path), metavar="FILE",
              help="Certificate, for an address that others reach.")
@click.option("--tls-key", type=SomePath(path_type=Path), metavar="FILE", help="Its key.")
@click.option("--insecure", is_flag=True, help="Serve such an address without TLS: anyone on the way can read along.")
@click.option("--otlp", metavar="ENDPOINT", help="Send metrics there, too, by OTLP over HTTP (extra otlp).")
@click.option("--link", is_flag=True, help="Only print a new link for the page that runs.")
def ui_command(directory: str | None, link: bool, **options: Any) -> None:
    """Serve a web page that shows the cluster live, until Ctrl-C or SIGTERM.

    It prints a link that lets one browser in, once; --link prints another. Programs send the token in the file ui.token
    of the cluster's directory, as Authorization: Bearer TOKEN.
    """
    check_extra()
    run_dir = open_cluster(directory)
    if link:
        say(link_for(run_dir))
        return
    from squall.ui.server import UiOptions, serve

    serve(run_dir, UiOptions(**options), lambda _: say(link_for(run_dir)))


def check_extra() -> None:
    """UsageError unless what the web page needs is installed."""
    if importlib.util.find_spec("nicegui") is None:
        raise UsageError("the web page needs more packages: pip install 'squall[ui]'")


def ui_options(with_ui: bool, ui_port: int | None = None) -> list[str] | None:
    """The options of a cluster's own web page; None if it is to have none."""
    if not with_ui:
        if ui_port is not None:
            raise UsageError("--ui-port is for --ui")
        return None
    check_extra()
    return [] if ui_port is None else ["--port", str(ui_port)]


def link_for(run_dir: RunDir) -> str:
    """A link to the page that runs."""
    from squall.ui.access import link_of

    return link_of(run_dir)


def tell_link(run_dir: RunDir, interrupts: Interrupts) -> None:
    """Wait for a page that was started, which takes a second or, on a busy machine, several; print its link on
    stderr."""
    from squall.ui.access import running_address

    until = time.monotonic() + _START_SECS
    while running_address(run_dir) is None:
        if interrupts.count or time.monotonic() > until:
            note(f"the web page has not started: see {run_dir.daemon_log('ui')}; `squall ui --link` prints its link")
            return
        time.sleep(_LOOK_SECS)
    note(f"web page: {link_for(run_dir)}")


@click.command("thrift")
@directory_option
@click.option("--port", type=click.IntRange(0, 65535), default=6627, show_default=True, metavar="N",
              help="Port; 0: any free one.")
def thrift_command(directory: str | None, port: int) -> None:
    """Serve Storm's Nimbus interface at 127.0.0.1, for clients such as `storm list` and streamparse, until Ctrl-C or
    SIGTERM.

    It asks for no password, as Storm: every user of this machine can give orders by it. Needs the extra `thrift`.
    """
    try:
        from squall.ui.storm_thrift import serve as serve_thrift
    except ModuleNotFoundError:
        raise UsageError("squall thrift needs thriftpy2: pip install 'squall[thrift]'") from None
    serve_thrift(open_cluster(directory), port, lambda address: say(f"Storm's Nimbus interface: {address}"))
