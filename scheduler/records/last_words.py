"""What a worker that ends by an exception leaves for the others: the trees that it ends by, and the error.

It sends the same to their ackers, but a frame that arrives after the news of the death is refused. The file is written
before that news.

Guarantees: a death that the status board marks as explained has its last words on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import astuple

from squall.engine.api.failure import Failure
from squall.ipc.private import gone_if_failed, make_levels
from squall.ipc.rundir import RunDir


def write_last_words(
    run_dir: RunDir, topology_id: str, worker: int, incarnation: int, failures: Mapping[int, Failure]
) -> None:
    """Called by a worker that is about to end, before it publishes on the board that it has explained itself."""
    path = run_dir.last_words(topology_id, worker, incarnation)
    make_levels(path.parent, 2)
    temporary = path.with_name(path.name + ".new")
    with gone_if_failed(temporary):
        temporary.write_text(json.dumps([(root, *astuple(failure)) for root, failure in failures.items()]))
        os.replace(temporary, path)


def read_last_words(run_dir: RunDir, topology_id: str, worker: int, incarnation: int) -> dict[int, Failure]:
    """Root -> failure of the trees that an incarnation ended by."""
    rows = json.loads(run_dir.last_words(topology_id, worker, incarnation).read_text())
    return {root: Failure(*failure) for root, *failure in rows}
