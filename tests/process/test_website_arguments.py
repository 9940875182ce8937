"""The programs of examples/website_monitoring say in one line what is wrong with their arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli import ROOT, environment

EXAMPLE = ROOT / "examples" / "website_monitoring"


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        ("make_logs", ["logs", "--days", "0"], "argument --days: is '0'; allowed: whole numbers from 1"),
        ("report", ["empty"], "empty/windows is not a directory; monitor.py makes it"),
        ("expect", ["empty"], "empty/feed/rows is not a directory; squall prepare makes it"),
    ],
)
def test_wrong_arguments_are_named_in_one_line(
    program: str, arguments: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    command = [sys.executable, str(EXAMPLE / f"{program}.py"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{program}.py: {said}")
    assert done.stderr.endswith("; see --help\n")
    assert done.stderr.count("\n") == 1
