"""What keys cost in the store of a task: commits, pauses, and the way back after a death; beside other stores."""

from __future__ import annotations

import gc
import importlib
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.effort import Effort
from benchmarks.results import Part
from squall.engine.state.keyed import State
from squall.engine.state.task_store import TaskStore

KEYS, QUICK_KEYS = (10_000, 1_000_000), (10_000,)
COMMITS, QUICK_COMMITS = 1_000, 200
WORDS = 1_000
"""Drawn for each commit, the common ones often (1 / rank), as words are."""
_AT_ONCE = 50_000
Commit = Callable[[list[str], int], object]


def measure(effort: Effort) -> Part:
    rows = []
    for keys in QUICK_KEYS if effort.quick else KEYS:
        drawn = list(_drawn(keys, QUICK_COMMITS if effort.quick else COMMITS))
        for name, store in STORES.items():
            with tempfile.TemporaryDirectory(prefix="squall-bench-") as directory:
                try:
                    rows.append([f"{keys:,}", name, *store(directory, keys, drawn)])
                except ImportError as error:
                    rows.append([f"{keys:,}", name, f"not measured: {error.name} is not installed"])
    return Part(
        title="The store of a task",
        about=f"{WORDS:,} words are drawn for each commit; those that are different change. Squall's task appends them "
        "to a log in SQLite, and puts\nthem in their places later; the others put them in their places at once, as a "
        "task of theirs would.\nTo open: what a task does after a death, until it can count.",
        header=["keys", "store", "us a changed key", "commit p50", "p99", "longest", "to open"],
        rows=rows,
    )


def _drawn(keys: int, commits: int) -> Iterator[list[str]]:
    rng = random.Random(1)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, keys + 1)))
    names = [f"word{rank}" for rank in range(keys)]
    for _ in range(commits):
        yield list(dict.fromkeys(rng.choices(names, cum_weights=weights, k=WORDS)))


def _figures(
    commit: Commit, drawn: list[list[str]], close: Callable[[], object], reopen: Callable[[], object]
) -> list[str]:
    gc.freeze()  # a collection would look through all that is drawn
    took = []
    for number, words in enumerate(drawn):
        began = time.perf_counter()
        commit(words, number)
        took.append(time.perf_counter() - began)
    close()
    began = time.perf_counter()
    reopen()
    opened = time.perf_counter() - began
    took.sort()
    a_key = sum(took) / sum(map(len, drawn))
    shown = [statistics.median(took), took[len(took) * 99 // 100], took[-1], opened]
    return [f"{a_key * 1e6:.1f}", *(f"{secs * 1e3:.1f} ms" for secs in shown)]


def _task(directory: str, keys: int, drawn: list[list[str]]) -> list[str]:
    store = TaskStore(directory, "count[1]")
    for begin in range(0, keys, _AT_ONCE):
        store.begin()
        store.put([(f"word{rank}", 0) for rank in range(begin, min(begin + _AT_ONCE, keys))])
        store.end()
    state = State(store, 1_000_000)

    def commit(words: list[str], number: int) -> None:
        for word in words:
            state[word] = state[word] + 1
        changes = state.changes()
        placed = state.to_place(len(changes))
        store.begin()
        log_bytes = store.append(state.commits, changes)
        if placed:
            store.put(placed)
            store.cut_log(state.log_begins(placed))
        store.end()
        state.committed(changes, placed, log_bytes)

    # Not closed before: a kill leaves the log, and SQLite's.
    return _figures(commit, drawn, list, lambda: State(TaskStore(directory, "count[1]"), 1_000_000))


def _sqlite(directory: str, keys: int, drawn: list[list[str]]) -> list[str]:
    store = TaskStore(directory, "count[1]")

    def commit(words: list[str], number: int) -> None:
        store.begin()
        store.put([(word, number) for word in words])
        store.end()

    commit([f"word{rank}" for rank in range(keys)], 0)
    return _figures(commit, drawn, list, lambda: TaskStore(directory, "count[1]").get("word0"))


def _lmdb(directory: str, keys: int, drawn: list[list[str]]) -> list[str]:
    lmdb: Any = importlib.import_module("lmdb")

    def opened() -> Any:
        return lmdb.open(directory, map_size=1 << 32, sync=False, metasync=False, writemap=True, map_async=True)

    env = opened()

    def commit(words: list[str], number: int) -> None:
        with env.begin(write=True) as transaction:
            transaction.cursor().putmulti([(word.encode(), b"%d" % number) for word in words])

    def reopen() -> None:
        with opened().begin() as transaction:
            transaction.get(b"word0")

    commit([f"word{rank}" for rank in range(keys)], 0)
    return _figures(commit, drawn, env.close, reopen)


def _rocksdb(directory: str, keys: int, drawn: list[list[str]]) -> list[str]:
    rocks: Any = importlib.import_module("rocksdict")
    path = str(Path(directory, "rocks"))
    store = rocks.Rdict(path)

    def commit(words: list[str], number: int) -> None:
        batch = rocks.WriteBatch()
        for word in words:
            batch.put(word, number)
        store.write(batch)

    def reopen() -> None:
        rocks.Rdict(path)["word0"]

    commit([f"word{rank}" for rank in range(keys)], 0)
    return _figures(commit, drawn, store.close, reopen)


STORES: dict[str, Callable[[str, int, list[list[str]]], list[str]]] = {
    "Squall's task, on SQLite": _task, "SQLite": _sqlite, "LMDB": _lmdb, "RocksDB (rocksdict)": _rocksdb,
}
