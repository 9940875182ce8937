"""CONTRIBUTING.md: its commands run, make knows its targets, and the files that it names are there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli import ROOT, environment

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
FOLDERS = ("engine", "ipc", "scheduler", "pipeline", "squall", "tests", "examples", "benchmarks", "docs")
MODULES = {"python": "", "pytest": " -m pytest", "squall": " -m squall"}
"""Programs of the environment -> how the interpreter that runs this test runs them."""


def with_this_interpreter(command: str) -> str:
    def path(found: re.Match[str]) -> str:
        program = found[1]
        if program in MODULES:
            return shlex.quote(sys.executable) + MODULES[program]
        return shlex.quote(str(Path(sys.executable).with_name(program)))

    return re.sub(r"\.venv/bin/([\w-]+)", path, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str) -> None:
    if command.startswith("make "):
        # Most take minutes: that make knows the target and its arguments is what can be seen at once.
        command = command.replace("make ", "make --dry-run ", 1)
    elif "py-spy" in command and not Path(sys.executable).with_name("py-spy").exists():
        pytest.skip("py-spy is in the extra `bench`")
    done = subprocess.run(
        ["bash", "-c", with_this_interpreter(command)], cwd=ROOT, env=environment(), capture_output=True, text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 10
    assert TEXT.count("```") == 2 * len(BLOCKS) + 2, "a block that is neither commands nor the commit message"


def test_files_that_it_names_are_there() -> None:
    named = set(re.findall(rf"\b((?:{'|'.join(FOLDERS)})/[\w/.-]*\w)", TEXT))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
