"""A simulated life is the same in every process, whatever the hash of text is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.sim.joined_life import JoinedLife

ROOT = Path(__file__).parents[2]
LIVES = 2
_IMPORT = "from tests.sim.joined_life import JoinedLife"
_CODE = "print(*[JoinedLife(seed).run() for seed in range({0}, {0} + {1})])"


def test_a_seed_is_one_life_whatever_the_hash_of_text(seed: int) -> None:
    here = [JoinedLife(each).run() for each in range(seed, seed + LIVES)]
    assert len(set(here)) == LIVES
    env = {**os.environ, "PYTHONHASHSEED": "4711"}
    command = [sys.executable, "-c", f"{_IMPORT}; {_CODE.format(seed, LIVES)}"]
    there = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    assert there.stdout.split() == here
