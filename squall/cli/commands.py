"""The `squall` command.

Guarantees: an error is one readable line on stderr and a non-zero exit (2 = wrong use, 1 = failure); `--debug` adds the
traceback. Commands that need Spark import it when they are called.
"""

from __future__ import annotations

import sys
import textwrap
import traceback
from pathlib import Path

import click
import zmq
from click.core import ParameterSource

from squall import __version__
from squall.cli.activate import activate_command, deactivate_command
from squall.cli.chaos import chaos_command
from squall.cli.config import config_command
from squall.cli.daemons import nimbus_command, supervisor_command
from squall.cli.dead_letters import dead_letters
from squall.cli.down import down_command
from squall.cli.faults import faults_command
from squall.cli.inject import heal_command, inject_command
from squall.cli.kill import kill_command
from squall.cli.layers import command_path, use_settings_file, variable_of
from squall.cli.logs import logs_command
from squall.cli.output import note
from squall.cli.rebalance import rebalance_command
from squall.cli.repair import repair_command
from squall.cli.reset import reset_command
from squall.cli.run import run_command
from squall.cli.spark import prepare
from squall.cli.spark_plan import spark_group
from squall.cli.status import status_command
from squall.cli.submit import submit_command
from squall.cli.topologies import list_command
from squall.cli.up import up_command
from squall.cli.verify import verify
from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.plain_text import plain

EXIT_FAILURE, EXIT_USAGE = 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SQUALL"})
@click.option("--debug", is_flag=True, allow_from_autoenv=False, help="Show the traceback of an error.")
@click.option("--settings", "settings_path", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
              envvar="SQUALL_SETTINGS", help="Settings file (default: the nearest squall.toml or pyproject.toml).")
@click.version_option(__version__, prog_name="squall", allow_from_autoenv=False)
@click.pass_context
def cli(context: click.Context, debug: bool, settings_path: str | None) -> None:
    """Squall runs stream-processing topologies on the cores of this machine; every record at least once."""
    context.obj = {"debug": debug}
    if settings_path is not None:
        use_settings_file(context, None, settings_path)
    else:
        command = cli.get_command(context, context.invoked_subcommand or "")
        if command is None:
            return
        # A command with a FILE looks beside it.
        names = {"target"} if isinstance(command, click.Group) else {param.name for param in command.params}
        if "target" not in names:
            use_settings_file(context, Path())


STANDING = (
    up_command, down_command, nimbus_command, supervisor_command, submit_command, list_command, status_command,
    activate_command, deactivate_command, rebalance_command, reset_command, kill_command,
    logs_command, repair_command, inject_command, heal_command,
)
SPARK = (prepare, verify, spark_group)
for command in (run_command, chaos_command, *STANDING, faults_command, dead_letters, config_command, *SPARK):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    arguments = sys.argv[1:] if arguments is None else arguments
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
    except zmq.ZMQError as error:
        _tell(error, arguments)
        code = EXIT_FAILURE
    except Exception:
        # A bug in Squall; its text may hold anything.
        _note_traceback()
        code = EXIT_FAILURE
    sys.exit(code if isinstance(code, int) else 0)


def _tell(error: Exception, arguments: list[str], text: str | None = None) -> None:
    """Print the text, or else the error's own."""
    if "--debug" in arguments:
        _note_traceback()
    note(f"squall: {plain(text or error)}")


def _note_traceback() -> None:
    """Print the traceback, indented: exception texts in it may have lines that must not look like ours."""
    note(textwrap.indent(traceback.format_exc().rstrip("\n"), "  "))


def _variable_behind(error: click.BadParameter) -> str:
    """Name the variable that gave a bad value; "" if none did."""
    option, context = error.param, error.ctx
    if option is None or context is None:
        return ""
    if context.get_parameter_source(option.name or "") is not ParameterSource.ENVIRONMENT:
        return ""
    return f", from the variable {variable_of(max(option.opts, key=len), command_path(context))}"


def _show(error: click.ClickException) -> int:
    """Print click's message on wrong use as one line, made plain because it quotes the arguments."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    said = error.format_message().removesuffix(".")
    if isinstance(error, click.BadParameter):
        said += _variable_behind(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        note(said)
    else:
        where = f" (see `{context.command_path} --help`)" if context is not None else ""
        note(f"squall: {plain(said[:1].lower() + said[1:])}{where}")
    return error.exit_code
