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
from pathlib import Path

import click

from squall import __version__
from squall.cli.output import note
from squall.engine.errors import SquallError, UsageError

EXIT_FAILURE, EXIT_USAGE = 1, 2


class LazyGroup(click.Group):
    """Shows its help without an import; each command is imported from its home on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"squall.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


STANDING = {
    "up": ("steering.cluster", "Start a standing cluster."),
    "down": ("steering.cluster", "Drain and stop a standing cluster."),
    "nimbus": ("steering.cluster", "Run Nimbus alone."),
    "supervisor": ("steering.cluster", "Run the supervisor of one node alone."),
    "submit": ("running.submit", "Run a topology on the standing cluster."),
    "list": ("steering.topologies", "List the topologies of the cluster."),
    "status": ("looking.status", "Show the cluster, or a topology with its workers and counts."),
    "ps": ("looking.status", "List the processes of the cluster."),
    "activate": ("steering.topologies", "Let a topology's spouts emit again."),
    "deactivate": ("steering.topologies", "Stop a topology's spouts."),
    "rebalance": ("steering.topologies", "Drain a topology and spread it anew."),
    "reset": ("steering.topologies", "Start the FAILED slots of a topology anew."),
    "kill": ("steering.topologies", "Drain a topology and remove it."),
    "logs": ("looking.workers", "Show the output of a topology's workers."),
    "trace": ("looking.trace", "Show the way of single records through a topology."),
    "tap": ("looking.trace", "Show tuples of a component as they pass."),
    "clean": ("steering.topologies", "List or remove what topologies that are gone have left."),
    "inject": ("steering.inject", "Break something in a running cluster on purpose."),
    "heal": ("steering.inject", "End faults that are in force."),
}
COMMANDS = {
    "run": ("running.run", "Run a topology on a cluster of its own."),
    "chaos": ("running.chaos", "Run a topology under random faults and prove its results."),
    **STANDING,
    "ui": ("steering.ui", "Serve a web page that shows the cluster live."),
    "faults": ("steering.inject", "List every fault that can be injected."),
    "dead-letters": ("data.kept", "List messages that were given up, or give them back."),
    "state": ("data.kept", "Show, export or import the state of a topology's bolts."),
    "top": ("looking.status", "Show a topology live in the terminal."),
    "profile": ("looking.workers", "Draw a flame graph of a worker."),
    "doctor": ("looking.setup", "Tell what is missing or misset on this machine."),
    "config": ("looking.setup", "Show settings, and where they come from."),
    "queue": ("data.queue", "Use a durable queue in a directory."),
    "thrift": ("steering.ui", "Serve Storm's Nimbus interface."),
    "prepare": ("data.spark", "Make a feed from text files, with Spark."),
    "verify": ("data.verify", "Check results with Spark."),
    "spark": ("data.spark", "Tell what of a topology runs on Spark."),
}
"""Command -> its module below `squall.cli`, which has it as NAME_command, and its line in the group's help."""


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SQUALL"},
)
@click.option("--debug", is_flag=True, allow_from_autoenv=False, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="squall", allow_from_autoenv=False)
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Squall runs stream-processing topologies on the cores of this machine; every record at least once."""
    command = cli.get_command(context, context.invoked_subcommand or "")
    if command is None:
        return
    from squall.cli.settings import check_variables, use_settings_file


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
