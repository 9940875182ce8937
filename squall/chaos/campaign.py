"""Runs many seeds of one proof, several at a time, in processes of their own; finds the fewest faults that fail.

Guarantees: gives one result for each seed, in the order of completion. When its block ends, for any reason, none of its
processes runs; nor when its own process is killed.

Relies on: its process having one thread and no sockets when it begins, because it forks; every call being told of an
interrupt by the signal handler that it inherits.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from squall.chaos.proof import Expected, Proof, SeedResult
from squall.chaos.trial import Stopped
from squall.engine.errors import ClusterError
from squall.scheduler.common.process import die_with_parent

T = TypeVar("T")
SHRINK_TRIES = 20
_LOOK_SECS = 0.2
_proof: Proof
"""Of a process of the campaign, which inherits it: topologies of scripts cannot be pickled."""


def _begin(proof: Proof, parent: int) -> None:
    global _proof
    _proof = proof
    die_with_parent()
    if os.getppid() != parent:  # it died before
        sys.exit(1)


def _learn() -> Expected:
    return _proof.learn()


def _try(seed: int, expected: Expected, only: Sequence[int] | None) -> SeedResult:
    return _proof.try_seed(seed, expected, only)


class Campaign:
    """Runs one proof for many seeds. A context manager."""

    def __init__(self, proof: Proof, jobs: int, should_stop: Callable[[], bool]) -> None:
        context = multiprocessing.get_context("fork")
        self._pool = ProcessPoolExecutor(jobs, context, _begin, (proof, os.getpid()))
        self._should_stop = should_stop

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for child in multiprocessing.active_children():
                child.terminate()
        self._pool.shutdown(cancel_futures=True)

    def learn(self) -> Expected:
        """See `Proof.learn`."""
        (expected,) = self._completed([self._pool.submit(_learn)])
        return expected

    def seeds(self, seeds: Sequence[int], expected: Expected, only: Sequence[int] | None) -> Iterator[SeedResult]:
        """Try every seed once."""
        return self._completed([self._pool.submit(_try, seed, expected, only) for seed in seeds])

    def shrink(
        self, result: SeedResult, expected: Expected, tried: Callable[[Sequence[int], bool], None]
    ) -> list[int] | None:
        """Find the fewest faults with which a failed seed still fails. Returns their numbers, from 1.

        None if the seed succeeds when it is run again: the failure depends on timing.
        """

        def fails(numbers: Sequence[int]) -> bool:
            (again,) = self.seeds([result.seed], expected, numbers)
            tried(numbers, again.good)
            return not again.good

        everything = range(1, len(result.faults) + 1)
        return smallest(everything, fails, SHRINK_TRIES) if fails(everything) else None

    def _completed(self, calls: Sequence[Future[T]]) -> Iterator[T]:
        running = set(calls)
        while running:
            done, running = wait(running, _LOOK_SECS, FIRST_COMPLETED)
            if self._should_stop():
                raise Stopped
            for one in done:
                try:
                    yield one.result()
                except BrokenProcessPool as error:
                    raise ClusterError(f"a process of squall chaos ended without a result: {error}") from error


class _OutOfTries(Exception):
    pass


def smallest(items: Sequence[Any], fails: Callable[[Sequence[Any]], bool], tries: int) -> list[Any]:
    """Find the smallest part of `items`, which failed as a whole, that still fails (delta debugging, Zeller's ddmin).

    The result failed when it was tried; if `tries` sufficed, no single item of it can be left out.
    """
    left = tries

    def still_fails(some: Sequence[Any]) -> bool:
        nonlocal left
        if not left:
            raise _OutOfTries
        left -= 1
        return fails(some)

    best = list(items)
    parts = 2
    with contextlib.suppress(_OutOfTries):
        while len(best) > 1:
            size = -(-len(best) // parts)
            chunks = [best[at : at + size] for at in range(0, len(best), size)]
            rests = [[item for other in chunks if other is not chunk for item in other] for chunk in chunks]
            # The rest of a half is the other half.
            candidates = chunks if len(chunks) == 2 else chunks + rests
            found = next((some for some in candidates if still_fails(some)), None)
            if found is not None:
                parts = max(2, parts - 1) if len(found) > size else 2
                best = found
            elif size == 1:
                break
            else:
                parts = min(len(best), 2 * parts)
    return best
