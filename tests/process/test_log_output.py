"""A log is turned over by its size, and no line is lost or cut by that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from squall.scheduler.common.logs import OLDER_LOGS, LogTail, older_log

PRINTS = """
import os, sys
from squall.scheduler.common.logs import log_output
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.dup2(fd, 1)
os.dup2(fd, 2)
log_output(sys.argv[1], 4096)
for number in range(1000):
    print(f"line {number} " + "x" * 50, file=sys.stderr if number % 2 else sys.stdout)
print("\\u00fc \\udcff")
os.write(2, b"native\\n")
"""


def test_a_log_is_turned_over_by_size(tmp_path: Path) -> None:
    log = tmp_path / "node-1-6700.log"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    subprocess.run([sys.executable, "-c", PRINTS, log], check=True, env=ascii_only)
    files = sorted(tmp_path.iterdir())
    assert files == [older_log(log, number) for number in range(OLDER_LOGS + 1)]
    assert all(4096 <= file.stat().st_size < 4096 + 100 for file in files[1:])
    lines = [line for _, line in LogTail(tmp_path, from_start=True).poll()]
    assert lines.pop() == "native"
    assert lines.pop() == "\u00fc \\udcff"
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 1000))
    assert 150 < len(numbers) < 300
