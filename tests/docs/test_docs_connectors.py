"""The programs and commands of docs/connectors.md that need no server, typed in a directory of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli import ROOT, environment, plugin_arguments

TEXT = (ROOT / "docs/connectors.md").read_text()
NEED_NO_SERVER = ("Embedded queue", "SQL", "Your own")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}


def run(command: str, at: Path) -> str:
    if command.startswith("pytest"):
        return run_pytest(command, at)
    shell = command.replace("squall ", f"{shlex.quote(sys.executable)} -m squall ")
    done = subprocess.run(["sh", "-c", shell], cwd=at, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def run_pytest(command: str, at: Path) -> str:
    words = [sys.executable, "-m", *command.split(), "-q", "-p", "no:cacheprovider", *plugin_arguments()]
    paths = environment(PYTHONPATH=os.pathsep.join((str(ROOT), str(at))))
    done = subprocess.run(words, cwd=at, env=paths, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stdout + done.stderr
    return ""


def sized(text: str) -> str:
    return re.sub(r"[\d,]+ bytes", "some bytes", text)


@pytest.mark.parametrize("name", NEED_NO_SERVER)
def test_a_section_does_what_it_shows(tmp_path: Path, name: str) -> None:
    section = SECTIONS[name]
    for file, program in re.findall(r"^```python\n# (\S+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        (tmp_path / file).write_text(program)
    shown = re.findall(r"^    \$ (.+)\n((?:    (?!\$).*\n)*)", section, re.MULTILINE)
    assert shown
    for command, output in shown:
        printed = run(command, tmp_path)
        if output:
            assert sized(printed) == sized(re.sub(r"^    ", "", output, flags=re.MULTILINE)), command


def test_every_source_and_sink_has_a_section() -> None:
    import squall.connect

    named = {name for name in squall.connect.__all__ if name.endswith(("Source", "Sink"))}
    assert [name for name in named if f"`{name}`" not in TEXT.partition("\n## ")[0]] == []
