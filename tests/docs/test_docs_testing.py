"""The files that docs/testing.md shows, run by pytest as a reader would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import Page
from tests.process.cli import environment, plugin_arguments


def test_every_file_it_shows_passes(tmp_path: Path) -> None:
    page = Page("docs/testing.md")
    assert len(page.of("python")) == len(page.programs)
    page.save(tmp_path)
    tests = "".join(page.of("python")).count("\ndef test_")
    assert tests >= 9
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin_arguments(), "-W", "error"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout
