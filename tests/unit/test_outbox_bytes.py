"""How much a task has in the outbox is asked around each `execute` with `--local`: it must not cost a look at all."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from squall.engine.api.tuple import Run
from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.outbox import Outbox

HERE, THERE = 50, 51


class Watched(Batch):
    """Counts how often its size is asked for."""

    looks = 0

    @property
    def source(self) -> int:
        Watched.looks += 1
        return self._source

    @source.setter
    def source(self, source: int) -> None:
        self._source = source


def open_batch(target: int, source: int = 1) -> OpenBatch:
    return OpenBatch(source, "default", target, {HERE: 0, THERE: 1})


def made(source: int, target: int) -> Watched:
    batch = Watched(source, "default", target)
    batch.rows, batch.bytes = [(source,)], 100 + source
    return batch


def test_it_is_that_of_the_task_whatever_is_put_in_and_taken() -> None:
    rng = random.Random(7)
    outbox, held = Outbox(), Counter[tuple[int, int]]()
    open_ones = {target: open_batch(target) for target in (HERE, THERE)}
    for _ in range(2000):
        source, target = rng.randrange(2, 6), rng.choice((HERE, THERE))
        match rng.randrange(12):
            case 0:
                outbox.take_here()
                held = Counter({key: held[key] for key in held if key[1] != HERE})
            case 1:
                outbox.take_there()
                held = Counter({key: held[key] for key in held if key[1] != THERE})
            case 2:
                outbox.take_there(lambda target: False)
            case 3:
                rows: Any = open_ones[target]
                outbox.start_run(rows, source, [Run(0, 0, 1)], (1,))
                rows.rows.append((1,))
            case _:
                outbox.put(open_batch(target), made(source, target))
                held[source, target] += 100 + source
        assert outbox.bytes_of(source) == held[source, HERE] + held[source, THERE]


def test_many_tasks_do_not_make_it_slow() -> None:
    outbox = Outbox()
    for source in range(100):
        outbox.bytes_of(source)
        for _ in range(20):
            outbox.put(open_batch(HERE), made(source, HERE))
        outbox.bytes_of(source)
    assert Watched.looks < 20_000
