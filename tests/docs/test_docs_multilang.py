"""Every program and command of docs/multilang.md does what the page says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.process.cli import ROOT, squall, start
from tests.process.standing_tools import directory
from tests.process.waiting import wait_for
from tests.servers.test_streamparse_projects import PATH, PROJECT, TOTALS, totals

PAGE = (ROOT / "docs" / "multilang.md").read_text()
COMMANDS = re.findall(r"^(squall .+)$", PAGE, re.MULTILINE)


def words(command: str) -> list[str]:
    return [{"DIR": str(PROJECT), "NAME": "word_lengths"}.get(word, word) for word in shlex.split(command)[1:]]


def test_all_commands_are_here() -> None:
    assert [command.split()[1] for command in COMMANDS] == ["run", "run", "run", "submit"]


def test_the_program_of_the_page(tmp_path: Path) -> None:
    for name, text in re.findall(r"^```python\n# (\w+\.py).*?\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(text.replace('"split.py"', f'"{tmp_path}/split.py"'))
    for mode in ((), ("--local",)):
        done = squall("run", tmp_path / words(COMMANDS[0])[1], *mode, "--json", PATH=PATH)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["acked"], report["components"]["split"]["emitted"]) == (1000, 7000)


@pytest.mark.parametrize("command", COMMANDS[1:3])
def test_a_project_is_run(tmp_path: Path, command: str) -> None:
    running = start(*words(command), PATH=PATH, WORDS_DIRECTORY=str(tmp_path))
    try:
        wait_for("all words", lambda: totals(tmp_path) == TOTALS or running.poll() is not None)
    finally:
        running.terminate()
        _, said = running.communicate(timeout=100)
    assert running.returncode == 0, said


def test_a_project_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("WORDS_DIRECTORY", str(tmp_path))
    with directory() as cluster:
        cluster.up(nodes=1, slots=1)
        cluster.ok(*words(COMMANDS[3]))
        wait_for("all words", lambda: totals(tmp_path) == TOTALS)
        cluster.ok("kill", "words")
