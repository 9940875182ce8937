"""`squall thrift`: Storm's Nimbus interface to a standing cluster."""

from __future__ import annotations

import click

from squall.cli.shown.output import say
from squall.cli.standing import directory_option
from squall.engine.errors import UsageError
from squall.scheduler.client.standing import open_cluster


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
        from squall.ui.thrift.thrift_server import serve
    except ModuleNotFoundError:
        raise UsageError("squall thrift needs thriftpy2: pip install 'squall[thrift]'") from None
    serve(open_cluster(directory), port, lambda address: say(f"Storm's Nimbus interface: {address}"))
