"""The README's programs and commands do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.process.cli import ROOT, environment, squall

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


def test_hello(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(PROGRAMS[0])
    for mode in (("--workers", "2"), ("--local",)):
        done = squall("run", tmp_path / "hello.py", *mode)
        assert done.returncode == 0, done.stderr
        assert "the largest square is 998001" in done.stdout + done.stderr
        assert "1,000 acked" in done.stdout


def test_from_python(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(PROGRAMS[0])
    (tmp_path / "main.py").write_text(PROGRAMS[1])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1000 ")
    assert '"acked": 1000' in done.stdout


def test_commands() -> None:
    """Every `squall ...` line of the README, but the one that is test_hello's, runs and succeeds."""
    lines = [line for language, text in BLOCKS if not language for line in text.splitlines()]
    commands = [line.split() for line in lines if line.startswith("squall ")]
    assert len(commands) >= 3
    for _, *arguments in commands:
        if "hello.py" not in arguments:
            done = squall(*arguments)
            assert done.returncode == 0, done.stderr


def test_config_lists_the_settings() -> None:
    done = squall("config", "--set", "topology.max.spout.pending=500")
    assert "max_spout_pending = 500" in done.stdout
