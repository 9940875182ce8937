"""The programs and commands of docs/connectors.md that need no server, typed in a directory of their own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.process.cli import ROOT, environment, plugin_arguments

PAGE = "docs/connectors.md"


def run(command: str, at: Path) -> str:
    paths = environment(PYTHONPATH=f"{ROOT}:{at}")
    shell = re.sub(r"\b(squall|pytest) ", rf"{shlex.quote(sys.executable)} -m \1 ", command)
    if command.startswith("pytest"):
        shell = shlex.join([*shlex.split(shell), "-p", "no:cacheprovider", *plugin_arguments()])
    done = subprocess.run(["sh", "-c", shell], cwd=at, env=paths, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def sized(text: str) -> str:
    return re.sub(r"[\d,]+ bytes", "some bytes", text)


@pytest.mark.parametrize("name", ["Embedded queue", "SQL", "Your own"])
def test_a_section_that_needs_no_server_does_what_it_shows(tmp_path: Path, name: str) -> None:
    section = Page(PAGE, name)
    section.save(tmp_path)
    shown = re.findall(r"^    \$ (.+)\n((?:    (?!\$).*\n)*)", section.text, re.MULTILINE)
    assert shown
    for command, output in shown:
        printed = run(command, tmp_path)
        if output:
            assert sized(printed) == sized(re.sub(r"^    ", "", output, flags=re.MULTILINE)), command


def test_every_source_and_sink_has_a_section() -> None:
    import squall.connect

    named = {name for name in squall.connect.__all__ if name.endswith(("Source", "Sink"))}
    assert [name for name in named if f"`{name}`" not in Page(PAGE).text.partition("\n## ")[0]] == []
