"""State that counts each record once, in simulated time: workers die between turns, and before and after each commit.

`run_life` raises CountedWrongError if a count is wrong in the end. MUTANTS switch off one part of the promise each;
a life must notice.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from squall.engine.api.config import Config
from squall.engine.core.executor import TaskCrashed
from squall.engine.state import lineage, settled, stateful_task, task_store
from squall.engine.state.absorbed import Absorbed, Group
from squall.engine.state.reading import read_component
from squall.testing import SimulatedCluster
from tests.process import state_parts as parts
from tests.process import window_parts as windowed

TEXTS, DEATHS, STEPS = 40, 6, 20_000


class CountedWrongError(Exception):
    """A record was not counted once."""


class _Died(BaseException):
    """The worker dies here."""


class _Dying:
    """Has a worker die before or after some of the commits."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self.left = rng, 0
        self.opened: list[Any] = []
        """Stores and readers: the process lives on when its workers die."""

    def draws(self) -> bool:
        """Return True if a death is due."""
        dies = self.left > 0 and self._rng.random() < 0.02
        self.left -= dies
        return dies

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        end = task_store.TaskStore.end

        def dying_end(store: task_store.TaskStore) -> None:
            if self.draws():
                store.undo()  # as the death of the process does
                raise _Died
            end(store)
            if self.draws():
                raise _Died

        with contextlib.ExitStack() as patches:
            patches.callback(self._close)
            patches.enter_context(patch.object(task_store.TaskStore, "end", dying_end))
            for kind in (task_store.TaskStore, task_store.Reader):
                patches.enter_context(patch.object(kind, "__init__", self._noting(kind.__init__)))
            yield

    def _close(self) -> None:
        for opened in self.opened:
            opened.close()

    def _noting(self, init: Any) -> Any:
        def noting_init(made: Any, *arguments: Any) -> None:
            init(made, *arguments)
            self.opened.append(made)

        return noting_init


def run_life(seed: int) -> None:
    """Run one topology to its end. CountedWrongError if a result is wrong, or it does not end."""
    rng = random.Random(seed)
    split, count = [(parts.Split, parts.Count), (parts.SplitBatch, parts.CountBatch)][seed % 2]
    of_windows = seed % 3 == 0
    bolt = windowed.Folded().with_sliding_window(secs=2, slide_secs=0.5).with_key("user").with_timestamp_field("at")
    topology = (
        windowed.windows(5 * TEXTS, bolt.with_lag(secs=0.1)) if of_windows
        else parts.topology(parts.Texts(TEXTS), split(), count())
    )
    dying = _Dying(rng)
    with tempfile.TemporaryDirectory() as root, dying.in_force():
        cluster = SimulatedCluster(
            topology, Config(workers=2, seed=seed, message_timeout_secs=2.0), state_root=root, record=False
        )
        dying.left = DEATHS
        for _ in range(STEPS):
            if cluster.drained:
                break
            _step(cluster, rng, dying)
        else:
            raise CountedWrongError(f"seed {seed}: it did not end")
        dying.left = 0
        cluster.close()
        if of_windows:
            found, expected = read_component(Path(root), "keep"), windowed.sliding_results(5 * TEXTS)
        else:
            found, expected = read_component(Path(root), "count"), parts.expected(TEXTS)
            if Counter(read_component(Path(root), "total")["totals"]) != expected:
                raise CountedWrongError(f"seed {seed}: behind other state")
        if Counter(found) != expected:
            raise CountedWrongError(f"seed {seed}")


def _step(cluster: SimulatedCluster, rng: random.Random, dying: _Dying) -> None:
    try:
        # Floors are stored, and looked at, every 50 ms: also with messages under way.
        if not cluster.step() or rng.random() < 0.2:
            cluster.clock.advance_ns(60_000_000)
    except TaskCrashed as crash:
        _replace(cluster, cluster.plan.task_worker[crash.task])
    if dying.draws():
        _replace(cluster, rng.randrange(2))


def _replace(cluster: SimulatedCluster, worker: int) -> None:
    for _, _, user in cluster.core(worker).users():
        if (store := getattr(user, "store", None)) is not None:
            store.close()  # as the death of a process does; what is not committed is gone
    cluster.kill(worker)
    while cluster.workers[worker] is None:
        with contextlib.suppress(TaskCrashed):
            cluster.restart(worker)


@dataclass(frozen=True)
class StateMutant:
    """A part of the promise that is switched off."""

    off: str
    replaced: tuple[Any, str, Any]
    """Owner, name and what stands there instead."""

    def first_broken(self, seeds: int) -> int | None:
        """The first seed that notices; None if none does."""
        with patch.object(*self.replaced):
            for seed in range(seeds):
                try:
                    run_life(seed)
                except CountedWrongError:
                    return seed
        return None


def _all_newest(its: settled.Settling) -> Iterator[settled.StoredFloor]:
    for one in its.partitions.values():
        if one.newest >= one.floor:
            one.floor = one.newest + 1
            yield one.stored


def _all_alike(its: lineage.Lineage, firsts: Iterator[int], counts: Sequence[int]) -> list[int]:
    return [first for first, count in zip(firsts, counts, strict=True) for _ in range(count)]


def _load_nothing(its: Absorbed, number: int, content: Any) -> None:
    its.take(Group(number, [], [], {}), set())


MUTANTS = [
    StateMutant("identities of earlier lives", (Absorbed, "load", _load_nothing)),
    StateMutant("a look at what is known", (Absorbed, "known", lambda its, identities: None)),
    StateMutant("forgetting only what is settled", (Absorbed, "_is_settled", lambda its, generation: True)),
    StateMutant("floors below what is open", (settled.Settling, "risen", _all_newest)),
    StateMutant("numbers of emits", (lineage.Lineage, "children_of", _all_alike)),
    StateMutant("emits that are repeated", (stateful_task.HeldEmits, "repeat", lambda its, identities, known: None)),
]
