"""Runs many seeds of one proof, several at a time, each in its own process; finds the fewest faults that fail.

Guarantees: gives one result for each seed, in the order of completion. When the iteration ends, for any reason, none of
its children runs; nor when its process is killed.

Relies on: its process having one thread and no sockets, because it forks.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

from squall.chaos.proof import Expected, Proof, SeedResult
from squall.chaos.shrink import smallest
from squall.chaos.trial import Stopped
from squall.engine.errors import ClusterError, SquallError
from squall.scheduler.common.process import die_with_parent

T = TypeVar("T")
SHRINK_TRIES = 20
_LOOK_SECS = 0.2
_SAYS_NOTHING = "a process of squall chaos ended without a result, by exit code {}"


class Campaign:
    """Runs one proof for many seeds."""

    def __init__(self, proof: Proof, jobs: int, should_stop: Callable[[], bool]) -> None:
        self._proof = proof
        self._jobs = jobs
        self._should_stop = should_stop

    def learn(self) -> Expected:
        """See `Proof.learn`."""
        (expected,) = self._each([self._proof.learn])
        return expected

    def seeds(self, seeds: Sequence[int], expected: Expected, only: Sequence[int] | None) -> Iterator[SeedResult]:
        """Try every seed once."""
        return self._each([_Try(self._proof, seed, expected, only) for seed in seeds])

    def shrink(
        self, result: SeedResult, expected: Expected, tried: Callable[[Sequence[int], bool], None]
    ) -> list[int] | None:
        """Find the fewest faults with which a failed seed still fails. Returns their numbers, from 1.

        None if the seed succeeds when it is run again: the failure depends on timing.
        """

        def fails(numbers: Sequence[int]) -> bool:
            (again,) = self._each([_Try(self._proof, result.seed, expected, numbers)])
            tried(numbers, again.good)
            return not again.good

        everything = range(1, len(result.faults) + 1)
        return smallest(everything, fails, SHRINK_TRIES) if fails(everything) else None

    def _each(self, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
        context = multiprocessing.get_context("fork")
        waiting = iter(list(tasks))
        running: dict[Connection, ForkProcess] = {}
        try:
            while True:
                while len(running) < self._jobs and (task := next(waiting, None)) is not None:
                    # A pipe: for a file there may be no room.
                    answer, answering = context.Pipe(duplex=False)
                    child = context.Process(target=_work, args=(task, answering, [answer, *running], os.getpid()))
                    child.start()
                    answering.close()
                    running[answer] = child
                if not running:
                    return
                answered = wait(list(running), _LOOK_SECS)
                if self._should_stop():
                    raise Stopped
                for answer in [answer for answer in running if answer in answered]:
                    yield _result(answer, running.pop(answer))
        finally:
            for child in running.values():
                child.terminate()
            for answer, child in running.items():
                child.join()
                answer.close()


class _Try:
    """A call that tries one seed."""

    def __init__(self, proof: Proof, seed: int, expected: Expected, only: Sequence[int] | None) -> None:
        self._arguments = seed, expected, only
        self._proof = proof

    def __call__(self) -> SeedResult:
        return self._proof.try_seed(*self._arguments)


def _work(task: Callable[[], Any], answering: Connection, of_parent: Sequence[Connection], parent: int) -> None:
    """Run a task in the child, and answer with its result. `of_parent`: inherited, and kept, a pipe whose reader was
    killed would never break."""
    for one in of_parent:
        one.close()
    die_with_parent()
    if os.getppid() != parent:  # it died before
        sys.exit(1)
    try:
        said: tuple[str, Any] = "done", task()
    except Stopped:
        said = "stopped", None
    except (SquallError, OSError) as error:
        said = "refused", error
    except BaseException:
        said = "broken", traceback.format_exc()
    answering.send_bytes(pickle.dumps(said))
    sys.exit(0)


def _result(answer: Connection, child: ForkProcess) -> Any:
    with answer:
        try:
            data = answer.recv_bytes()
        except EOFError:
            data = b""
    child.join()
    if child.exitcode or not data:
        raise ClusterError(_SAYS_NOTHING.format(child.exitcode))
    kind, value = pickle.loads(data)
    if kind == "refused":
        raise value
    if kind == "stopped":
        raise Stopped
    if kind == "broken":
        raise RuntimeError(value)
    return value
