"""The files that docs/testing.md shows, run by pytest as a reader would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.process.cli import ROOT, environment, plugin_arguments

TEXT = (ROOT / "docs/testing.md").read_text()
BLOCKS = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_every_file_it_shows_passes(tmp_path: Path) -> None:
    tests = 0
    for name, text in BLOCKS:
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(text)
        tests += len(re.findall(r"^def test_", text, re.MULTILINE))
    assert tests >= 9
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin_arguments(), "-W", "error"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


def test_every_python_block_is_a_file() -> None:
    assert TEXT.count("```python\n") == len(BLOCKS)
