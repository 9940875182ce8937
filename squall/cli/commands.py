"""The `squall` command.

Guarantees: an error is one readable line on stderr and a non-zero exit (2 = wrong use, 1 = failure); `--debug` adds the
traceback. A command's module is imported when the command is called, and what needs Spark or ZeroMQ not before: `squall
--help` is to be there at once.
"""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from squall import __version__
from squall.cli.shown.output import note
from squall.engine.errors import SquallError, UsageError

EXIT_FAILURE, EXIT_USAGE = 1, 2


class Home(NamedTuple):
    """Where a command is, and its line in the group's help."""

    place: str
    """module:name, in `squall.cli`."""
    summary: str


class LazyGroup(click.Group):
    """Shows its help without an import; each command is imported from its home on first use."""

    def __init__(self, *arguments: Any, homes: Mapping[str, Home], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._homes = homes

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._homes, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self._homes:
            module, _, name = self._homes[cmd_name].place.partition(":")
            command = getattr(importlib.import_module(f"squall.cli.{module}"), name)
            self.add_command(command, cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._homes[name].summary) for name in self.list_commands(ctx) if name in self._homes]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


STANDING = {
    "up": Home("cluster:up_command", "Start a standing cluster."),
    "down": Home("cluster:down_command", "Drain and stop a standing cluster."),
    "nimbus": Home("cluster:nimbus_command", "Run Nimbus alone."),
    "supervisor": Home("cluster:supervisor_command", "Run the supervisor of one node alone."),
    "submit": Home("submit:submit_command", "Run a topology on the standing cluster."),
    "list": Home("topologies:list_command", "List the topologies of the cluster."),
    "status": Home("status:status_command", "Show the cluster, or a topology with its workers and counts."),
    "ps": Home("ps:ps_command", "List the processes of the cluster."),
    "activate": Home("topologies:activate_command", "Let a topology's spouts emit again."),
    "deactivate": Home("topologies:deactivate_command", "Stop a topology's spouts."),
    "rebalance": Home("topologies:rebalance_command", "Drain a topology and spread it anew."),
    "reset": Home("topologies:reset_command", "Start the FAILED slots of a topology anew."),
    "kill": Home("topologies:kill_command", "Drain a topology and remove it."),
    "logs": Home("logs:logs_command", "Show the output of a topology's workers."),
    "trace": Home("insight.trace:trace_command", "Show the way of single records through a topology."),
    "tap": Home("insight.trace:tap_command", "Show tuples of a component as they pass."),
    "clean": Home("clean:clean_command", "List or remove what topologies that are gone have left."),
    "inject": Home("inject:inject_command", "Break something in a running cluster on purpose."),
    "heal": Home("inject:heal_command", "End faults that are in force."),
}
COMMANDS = {
    "run": Home("run:run_command", "Run a topology on a cluster of its own."),
    "chaos": Home("chaos:chaos_command", "Run a topology under random faults and prove its results."),
    **STANDING,
    "ui": Home("insight.ui:ui_command", "Serve a web page that shows the cluster live."),
    "faults": Home("inject:faults_command", "List every fault that can be injected."),
    "dead-letters": Home("dead_letters:dead_letters", "List messages that were given up, or give them back."),
    "state": Home("state:state_command", "Show, export or import the state of a topology's bolts."),
    "top": Home("insight.top:top_command", "Show a topology live in the terminal."),
    "profile": Home("insight.profile:profile_command", "Draw a flame graph of a worker."),
    "doctor": Home("insight.doctor:doctor_command", "Tell what is missing or misset on this machine."),
    "config": Home("config:config_command", "Show settings, and where they come from."),
    "queue": Home("outside.queue:queue_group", "Use a durable queue in a directory."),
    "thrift": Home("outside.thrift:thrift_command", "Serve Storm's Nimbus interface."),
    "prepare": Home("spark:prepare", "Make a feed from text files, with Spark."),
    "verify": Home("verify:verify", "Check results with Spark."),
    "spark": Home("spark:spark_group", "Tell what of a topology runs on Spark."),
}


@click.group(
    cls=LazyGroup, homes=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SQUALL"},
)
@click.option("--debug", is_flag=True, allow_from_autoenv=False, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="squall", allow_from_autoenv=False)
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Squall runs stream-processing topologies on the cores of this machine; every record at least once."""
    command = cli.get_command(context, context.invoked_subcommand or "")
    if command is None:
        return
    from squall.cli.given.settings import check_variables, use_settings_file

    check_variables(str(context.invoked_subcommand), command.params)
    # A command with a FILE looks beside it.
    if "target" not in [one.name for one in command.params]:
        use_settings_file(context, Path())


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name, by default those of this process, and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Names and prints may hold what this terminal cannot show: what was done is told all the same.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(arguments, prog_name="squall", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.Abort:
        note("interrupted")
        code = 130
    except click.ClickException as error:
        code = _show(error)
    except SquallError as error:
        _tell(error, arguments)
        code = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE
    except OSError as error:
        # The system refused: no descriptor left, a full disk, a file that cannot be read.
        _tell(error, arguments, f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        code = EXIT_FAILURE
    except Exception:
        # A bug in Squall.
        _note_traceback()
        code = EXIT_FAILURE
    sys.exit(code if isinstance(code, int) else 0)


def _tell(error: Exception, arguments: list[str], text: str | None = None) -> None:
    """Print the text, or else the error's own."""
    if "--debug" in arguments:
        _note_traceback()
    note(f"squall: {text or error}")


def _note_traceback() -> None:
    """Print the traceback, indented: exception texts in it may have lines that must not look like ours."""
    note(*(f"  {line}" for line in traceback.format_exc().rstrip("\n").split("\n")))


def _show(error: click.ClickException) -> int:
    """Print click's message on wrong use as one line, made plain because it quotes the arguments."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    said = error.format_message().removesuffix(".")
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        note(*said.split("\n"))
    else:
        where = f" (see `{context.command_path} --help`)" if context is not None else ""
        note(f"squall: {said[:1].lower()}{said[1:]}{where}")
    return error.exit_code
