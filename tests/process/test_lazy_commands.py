"""What `squall --help` imports, and Ctrl-C while a command imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "zmq", "msgspec", "rich", "pyarrow", "squall.scheduler", "squall.engine.core", "squall.engine.report.run_report",
)


@pytest.mark.parametrize("statement", ["import squall", "from squall.cli import main; main(['--help'])"])
def test_what_is_not_needed_is_not_imported(statement: str) -> None:
    code = f"import sys\ntry:\n    {statement}\nexcept SystemExit:\n    pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = done.stdout.splitlines()[-1].split()
    assert [name for name in names if name.startswith(HEAVY)] == []


INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts tests in the background has them ignore it
sys.meta_path.insert(0, Interrupts())
from squall.cli import main
main(["list"])
"""


@pytest.mark.parametrize("name", ["click", "squall.engine.errors", "squall.cli.steering.topologies"])
def test_ctrl_c_while_it_imports_is_one_line(name: str) -> None:
    line = [sys.executable, "-c", INTERRUPTED.format(name=name)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")
