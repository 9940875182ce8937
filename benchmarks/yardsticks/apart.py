"""Runs a yardstick in a process of its own, so that what it imports and starts ends with it.

A yardstick's file is its program too: `python FILE TEXT WORKERS REPEAT` prints seconds, lines and words as JSON, on the
last line of what it prints. It may be run by the interpreter of another environment, in which there is no Squall.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.measured import Measured, Unavailable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT_SECS = 240.0


def need(module: str) -> str:
    """The interpreter, if it has a module. Else Unavailable."""
    if importlib.util.find_spec(module) is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise Unavailable(f"{module} is not installed: the extra `bench` has it, if it has wheels for Python {version}")
    return sys.executable


def need_java() -> None:
    """Unavailable without one."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        raise Unavailable("needs java: install openjdk-17-jdk-headless (Debian/Ubuntu)")


def run_apart(name: str, corpus: Corpus, workers: int | str, repeat: int, python: str = sys.executable) -> Measured:
    """The outcome of one run of the file `name`.py beside this one, every word of which was counted."""
    command = [python, str(HERE / f"{name}.py"), str(corpus.path), str(workers), str(repeat)]
    # A group of its own: what it leaves running ends with it.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, complaint = process.communicate(timeout=TIMEOUT_SECS)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"no result within {TIMEOUT_SECS:g} s") from None
        finally:
            _end_group(process.pid)
    if process.returncode:
        # Java's causes stand after Python's traceback, with their stacks, which say nothing here.
        said_last = [line for line in complaint.splitlines() if line.strip() and not line[0].isspace()][-1:]
        raise Unavailable(f"ended with {process.returncode}: {(said_last or ['it said nothing'])[0][:300]}")
    secs, lines, words = json.loads(said.strip().splitlines()[-1])
    return Measured(secs, lines, words)


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
