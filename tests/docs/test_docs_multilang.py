"""Every program and command of docs/multilang.md does what the page says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.needs import require
from tests.process.cli import squall
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.servers.test_streamparse_projects import PATH, PROJECT, TOTALS, totals

PAGE = Page("docs/multilang.md")
COMMANDS = [command.replace("DIR", str(PROJECT)).replace("NAME", "word_lengths").split() for command in PAGE.commands]


def test_all_commands_are_here() -> None:
    assert [command for command, *_ in COMMANDS] == ["run", "run", "run", "submit"]


@pytest.fixture(autouse=True)
def pystorm() -> None:
    require("streamparse")


def test_the_program_of_the_page(tmp_path: Path) -> None:
    for name, text in PAGE.programs.items():
        (tmp_path / name).write_text(text.replace('"split.py"', f'"{tmp_path}/split.py"'))
    verb, program = COMMANDS[0]
    done = squall(verb, tmp_path / program, "--json", PATH=PATH)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["acked"], report["components"]["split"]["emitted"]) == (1000, 7000)


def test_a_project_is_submitted(cluster: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("WORDS_DIRECTORY", str(tmp_path))
    cluster.up(nodes=1, slots=1)
    cluster.ok(*COMMANDS[3])
    wait_for("all words", lambda: totals(tmp_path) == TOTALS)
    cluster.ok("kill", "words")
