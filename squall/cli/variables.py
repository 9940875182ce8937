"""The variable of each option: `SQUALL_`, the words of its command, and its long name.

Click would take the name of the function's parameter, which people do not see: SQUALL_RUN_AS_JSON for --json.
"""

from __future__ import annotations

import click

VARIABLES = "SQUALL_"
SECRETS = "variables"
"""The parameter of `--env`, whose values are quoted nowhere."""


class OneText(click.types.StringParamType):
    """A text of an option that may be given several times: its variable has one on each line, as they hold blanks."""

    envvar_list_splitter = "\n"


def variable_of(option: str, path: str = "") -> str:
    """The variable for an option of a command."""
    words = [*path.split(), *option.lstrip("-").split("-")]
    return VARIABLES + "_".join(words).replace("-", "_").upper()


def name_variables(command: click.Command, path: str) -> None:
    """Have the options of a command, and of those in it, read their variables."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            name_variables(inner, f"{path} {name}")
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and option.allow_from_autoenv:
            option.envvar = variable_of(max(option.opts, key=len), path)
