"""Workers forked from one parent draw nothing twice, however much the parent drew or seeded before."""

from __future__ import annotations

import subprocess
import sys

CHILDREN, IDS = 6, 20_000

SCRIPT = f"""
import os, random, sys
from itertools import islice
from squall.engine.flow.ids import EdgeIds, root_ids

random.seed(1)
EdgeIds().next(), next(root_ids(0))
for child in range({CHILDREN}):
    reading, writing = os.pipe()
    if os.fork() == 0:
        edges, roots = EdgeIds(), root_ids(0)
        drawn = [edges.next() for _ in range({IDS})] + list(islice(roots, {IDS}))
        with os.fdopen(writing, "w") as out:
            out.write("\\n".join(map(str, drawn)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as given:
        print(given.read())
    os.wait()
"""


def test_forked_workers_never_draw_the_same_id() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    drawn = [int(line) for line in done.stdout.split()]
    assert len(drawn) == CHILDREN * 2 * IDS
    assert len(set(drawn)) == len(drawn)
    assert 0 not in drawn
