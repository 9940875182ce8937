"""A disk that is really full: ENOSPC from the kernel, on a small file system that only the test's processes see."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.process.cli import ROOT, environment

IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def may_mount() -> bool:
    """Some systems keep people who are not root from making namespaces."""
    try:
        line = [*IN_A_NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "squall-test", "/tmp"]
        return subprocess.run(line, capture_output=True, timeout=120).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not may_mount(), reason="this system lets nobody but root mount; limits on file size stand for it")
def test_a_full_disk_costs_neither_state_nor_what_runs() -> None:
    directory = Path(tempfile.mkdtemp(prefix="d-", dir=os.environ["XDG_RUNTIME_DIR"]))
    line = [*IN_A_NAMESPACE, sys.executable, "-m", "tests.chaos.full_disk_scenario", str(directory)]
    try:
        done = subprocess.run(line, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=120)
    finally:
        directory.rmdir()
    assert done.returncode == 0, done.stderr
