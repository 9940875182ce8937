"""Commands of a page, run as a user does: one after the other, each in a process of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.process.cli import ROOT, environment

BEGIN = {"python": [sys.executable], "squall": [sys.executable, "-m", "squall"]}
#: Java takes long on a machine that is busy.
COMMAND_SECS = 240.0


def run_block(block: str, folder: Path) -> None:
    """Run the lines of a block in a folder with the examples in it. All must succeed."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for line in block.splitlines():
        first, *arguments = shlex.split(line, comments=True)
        done = subprocess.run(
            [*BEGIN[first], *arguments], cwd=folder, env=environment(), capture_output=True, text=True,
            timeout=COMMAND_SECS,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
