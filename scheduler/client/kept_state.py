"""Tells, before anything is stopped, whether a topology can take up what an earlier one of its name keeps.

Keys are looked at in a process of its own, which hashes text as the cluster's workers do::

    python -m squall.scheduler.client.kept_state STATE   < components, and whether to drop windows   > outcome

Guarantees: nothing is changed. What comes after the look is looked at once more by the tasks themselves
(`engine.state.dealing`). Process: any of the owner's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError
from squall.engine.state.dealing import check
from squall.engine.state.input_rows import Read
from squall.engine.state.reading import stores_of, tasks_of
from squall.engine.state.records.lineage import RESULTS
from squall.engine.state.windowing.windows import Declaration
from squall.ipc import hash_seed
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import ComponentSummary, Wire
from squall.scheduler.common.process import die_with_parent
from squall.scheduler.common.role import interpreter


class _Outcome(Wire, frozen=True):
    dropped: dict[str, int]
    refused: str = ""


class _Question(Wire, frozen=True):
    components: list[ComponentSummary]
    drops: bool


def check_kept(run_dir: RunDir, name: str, components: Sequence[ComponentSummary], drops: bool) -> dict[str, int]:
    """ClusterError if state that topologies of this name have left, or are writing, is of no use to these components.
    Returns how many open windows each component would drop."""
    root = run_dir.topology_state(name)
    kept = [each for each in components if stores_of(root, each.id)]
    made_by = {(each.tasks, tasks_of(path)) for each in kept for path in stores_of(root, each.id)}
    if all(before in (None, tasks) for tasks, before in made_by):
        return _look(root, kept, drops, hash)
    child = subprocess.run(
        [*interpreter(__name__), str(root)], input=msgspec.json.encode(_Question(kept, drops)), stdout=subprocess.PIPE,
        env={**os.environ, **hash_seed.environment(run_dir.hash_seed())}, check=False,
    )
    if child.returncode:
        raise ClusterError(f"the state in {root} cannot be looked at: the process for it ended with {child.returncode}")
    outcome = msgspec.json.decode(child.stdout, type=_Outcome)
    if outcome.refused:
        raise ClusterError(outcome.refused)
    return outcome.dropped


def _look(
    root: Path, components: Sequence[ComponentSummary], drops: bool, text_hash: Callable[[str], int]
) -> dict[str, int]:
    found = {}
    for one in components:
        reads = [
            Read(each.component.removesuffix(RESULTS), each.stream, (), each.grouping, tuple(each.fields))
            for each in one.inputs
        ]
        declaration = Declaration.unpacked(one.windows) if one.windows else None
        found[one.id] = check(root, one.id, one.tasks, reads, declaration, drops, text_hash)
    return {name: count for name, count in found.items() if count}


def main(root: str) -> None:
    """The process."""
    die_with_parent()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    try:
        outcome = _Outcome(_look(Path(root), question.components, question.drops, hash))
    except ClusterError as error:
        outcome = _Outcome({}, str(error))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main(sys.argv[1])
