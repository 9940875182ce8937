"""docs/tutorial: every program and command of its pages, run in order, prints what the page shows."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.process.cli import ROOT, environment
from tests.process.standing_tools import Standing

PAGES = sorted((ROOT / "docs/tutorial").glob("*.md"))
BLOCKS = {page.stem: Page(f"docs/tutorial/{page.name}").blocks for page in PAGES}
PREPARES, TAKES_LONG = "python3 make_orders.py", "squall chaos"


class Reader:
    """Somebody who works in a directory, in a shell whose `squall` and `python3` are those of this run."""

    def __init__(self, place: Path, cluster: Standing) -> None:
        self.place = place / "shop"
        self.place.mkdir()
        programs = place / "bin"
        programs.mkdir()
        for name, arguments in (("squall", "-m squall "), ("python3", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
            (programs / name).chmod(0o700)
        path = f"{programs}:{os.environ['PATH']}"
        self.variables = environment(PATH=path, SQUALL_DIR=str(cluster.path), COLUMNS="200")

    def save(self, program: str) -> None:
        [name] = re.findall(r"\A# (\S+\.py)\n", program)
        (self.place / name).write_text(program)

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.place, env=self.variables, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def read(self, page: str) -> None:
        """Do all that a page says, but for what takes long."""
        said = ""
        for language, text in BLOCKS[page]:
            if language == "python":
                self.save(text)
            elif language == "text":
                assert [line for line in text.splitlines() if line not in said] == [], said
            else:
                assert not language
                said = "".join(self.run(line) for line in text.splitlines() if not line.startswith(TAKES_LONG))

    def skip(self, page: str) -> None:
        """Take from a page what later ones need."""
        for language, text in BLOCKS[page]:
            if language == "python":
                self.save(text)
            elif not language:
                for line in text.splitlines():
                    if line.startswith(PREPARES):
                        self.run(line)


@pytest.mark.timeout(400)  # five pages, with what they start
def test_the_pages_one_after_the_other(tmp_path: Path, cluster: Standing) -> None:
    reader = Reader(tmp_path, cluster)
    for page in BLOCKS:
        reader.read(page)


@pytest.mark.nightly
def test_chaos_of_the_page_on_kills(tmp_path: Path, cluster: Standing) -> None:
    reader = Reader(tmp_path, cluster)
    for earlier in BLOCKS:
        if earlier <= "4-kill":
            reader.skip(earlier)
    [command] = [line for _, text in BLOCKS["4-kill"] for line in text.splitlines() if line.startswith(TAKES_LONG)]
    assert "1 seed, nothing lost or invented" in reader.run(command)


def test_the_pages_lead_from_one_to_the_next() -> None:
    assert len(PAGES) == 5
    for page, after in itertools.pairwise(PAGES):
        assert f"]({after.name})" in page.read_text().splitlines()[-1]
    hello = (ROOT / "examples" / "hello_world.py").read_text().partition('"""\n\n')[2]
    assert BLOCKS["1-hello"][0] == ("python", "# hello.py\n" + hello)
