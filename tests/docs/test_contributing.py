"""CONTRIBUTING.md: its commands run, make knows its targets, and the files that it names are there."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

# Here, and not when a command runs it: it keeps a file open, which would pass for a leak of the test.
import tests.sim.wire  # noqa: F401
from tests.process.cli import ROOT, environment

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
FOLDERS = ("engine", "ipc", "scheduler", "pipeline", "squall", "tests", "examples", "benchmarks", "docs")
MODULES = {"python": "", "pytest": " -m pytest", "squall": " -m squall"}
"""Programs of the environment -> how the interpreter that runs this test runs them."""


def run(*lines: str) -> None:
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr


def with_this_interpreter(command: str) -> str:
    def path(found: re.Match[str]) -> str:
        program = found[1]
        if program in MODULES:
            return shlex.quote(sys.executable) + MODULES[program]
        return shlex.quote(str(Path(sys.executable).with_name(program)))

    return re.sub(r"\.venv/bin/([\w-]+)", path, command)


def test_make_knows_its_targets_and_their_arguments() -> None:
    """Most take minutes: that is what can be seen at once."""
    makes = [line for line in COMMANDS if line.startswith("make ")]
    assert len(makes) > 10
    run(*(line.replace("make ", "make --dry-run ", 1) for line in makes))


@pytest.mark.filterwarnings("ignore:.* found in sys.modules:RuntimeWarning")  # another test has imported it
@pytest.mark.parametrize("command", [line for line in COMMANDS if " -m tests.sim" in line])
def test_command_of_the_simulation(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, module, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


@pytest.mark.parametrize("command", [line for line in COMMANDS if "make " not in line and " -m tests.sim" not in line])
def test_command(command: str) -> None:
    if "py-spy" in command and not Path(sys.executable).with_name("py-spy").exists():
        pytest.skip("py-spy is in the extra `bench`")
    # What the tests find is found elsewhere: that they are there, and the seed is understood, is what is said here.
    run(with_this_interpreter(command) + " --collect-only" * ("pytest" in command))


def test_there_are_commands() -> None:
    assert TEXT.count("```") == 2 * len(BLOCKS) + 2, "a block that is neither commands nor the commit message"


def test_files_that_it_names_are_there() -> None:
    named = set(re.findall(rf"\b((?:{'|'.join(FOLDERS)})/[\w/.-]*\w)", TEXT))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
