"""The objects of the fixtures: `squall_chaos` runs a test's topology under random faults, with a proof for each seed;
`squall_cluster` is real processes for one test, and a check for leftovers.

Guarantees: `run` returns when every seed was tried, or fails the test at the first failed seed; it leaves no process
and no file but a failed seed's logs of emits and receipts. `end` names and removes what an orderly close has left:
processes of the cluster and those that components started, the run directory, descriptors that are open in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall.chaos.mix import kinds_of
from squall.chaos.proof import Proof, SeedResult
from squall.chaos.result import Result
from squall.chaos.result_text import seed_text, timeline_text
from squall.chaos.taps import sinks_of
from squall.chaos.trial import SETTINGS, Subject
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology, check_topology
from squall.engine.errors import UsageError
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.testing.run_leftovers import left_behind


@dataclass(frozen=True)
class FixtureChaos:
    """Runs topologies under faults. Components may be defined in the test's own module."""

    directory: Path
    """The place for logs of emits and receipts."""
    module: ModuleType | None
    _: KW_ONLY
    faults: str = "all"
    """The mix, as of the command."""
    seeds: Iterable[int] = range(3)
    for_secs: float = 2.0
    sinks: Sequence[str] = ()
    nodes: int = 1
    key: Callable[[dict[str, Any]], Any] | None = None
    """Makes of a sink's tuple, a dict, what must be the same in each run."""
    result: Callable[[Path], Any] | None = None
    """Reads the result back from a directory, for a topology that is a function of it."""

    def run(
        self, topology: Topology | Callable[[Path], Topology], faults: str | None = None,
        seeds: Iterable[int] | None = None, *, config: Config | None = None, **options: Any,
    ) -> list[SeedResult]:
        """Prove for each seed that nothing is lost: see docs/chaos.md. `options` are the others of the test's marker:
        `for_secs`, `sinks`, `nodes`, `key`, `result`.

        Defaults come from the marker, or are all faults, three seeds of two seconds, and one node. With `result`, each
        run gets a topology of its own, made for a directory of its own. The test fails at the first failed seed.
        UsageError if nothing can be proved of the topology.
        """
        given = {"faults": faults, "seeds": seeds, **options}
        chosen = replace(self, **{name: value for name, value in given.items() if value is not None})
        seeds = list(chosen.seeds)
        if not seeds:
            raise UsageError("squall_chaos.run has no seeds: nothing would be proved; give it one or more numbers")
        result = None
        if chosen.result is not None:
            if not callable(topology):
                raise UsageError(
                    "squall_chaos.run with result= needs a function that makes the topology for a directory: what a "
                    "run wrote must not be there for the next one"
                )
            result, topology = Result(topology, chosen.read, self.directory), topology(self.directory)
        check_topology("squall_chaos.run", topology)
        assert isinstance(topology, Topology)
        sinks = tuple(chosen.sinks) or sinks_of(topology)
        subject = Subject(topology, self.module, config or Config(**SETTINGS), sinks, chosen.nodes)
        proof = Proof(
            subject, kinds_of(chosen.faults), chosen.for_secs, self.directory, result=result, key=chosen.key
        )
        expected = proof.learn()
        results = []
        for seed in seeds:
            tried = proof.try_seed(seed, expected)
            if not tried.good:
                pytest.fail(f"{seed_text(tried)}\n{timeline_text(tried)}", pytrace=False)
            results.append(tried)
        return results

    def read(self, place: Path) -> Any:
        """Read the result in a directory. UsageError for what the user's function raises."""
        assert self.result is not None, "there is something to compare"
        try:
            return self.result(place)
        except Exception as error:
            raise UsageError(f"result= raised {type(error).__name__}: {error}") from error


class FixtureCluster(LocalCluster):
    """A `LocalCluster` that sends the components of the test's own module by value: workers cannot import it."""

    def __init__(self, module: ModuleType | None, *, nodes: int = 1, slots_per_node: int = 2) -> None:
        self._module = module
        super().__init__(nodes, slots_per_node)

    def submit(
        self, name: str, topology: Topology, config: Config | None = None, by_value: ModuleType | None = None,
        active: bool = True, **options: Any,
    ) -> Job:
        return super().submit(name, topology, config, by_value or self._module, active, **options)

    def end(self) -> list[str]:
        """Close the cluster. Returns a line for each leftover."""
        self.close()
        return left_behind(self.run_dir)
