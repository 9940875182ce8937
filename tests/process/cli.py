"""Runs the `squall` command as a user does: a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "squall", *map(str, arguments)]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", **extra}


def squall(*arguments: str | Path, timeout: float = 120.0, **extra: str) -> subprocess.CompletedProcess[str]:
    """The finished command: returncode, stdout, stderr."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=environment(**extra), capture_output=True, text=True, timeout=timeout
    )


def start(*arguments: str | Path, **extra: str) -> subprocess.Popen[str]:
    """The running command."""
    return subprocess.Popen(
        command(*arguments), cwd=ROOT, env=environment(**extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def running(*arguments: str | Path, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """The command; a test that fails leaves it neither behind nor waits for it."""
    with start(*arguments, **extra) as process:
        try:
            yield process
        finally:
            process.kill()


def plugin_arguments() -> list[str]:
    """For pytest runs of their own: where Squall is installed, pytest finds the plugin by itself, and not twice."""
    return [] if entry_points(group="pytest11", name="squall") else ["-p", "squall.testing.plugin"]
