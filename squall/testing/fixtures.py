"""The objects of the fixtures: `squall_chaos` runs a test's topology under random faults, with a proof for each seed;
`squall_cluster` is real processes for one test, and a check for leftovers.

Guarantees: `run` returns when every seed was tried, or fails the test at the first failed seed; it leaves no process
and no file but a failed seed's logs of emits and receipts. `end` names and removes what an orderly close has left:
processes of the cluster and those that components started, the run directory, descriptors that are open in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall.chaos.mix import kinds_of
from squall.chaos.proof import Proof, SeedResult
from squall.chaos.result_text import seed_text, timeline_text
from squall.chaos.taps import sinks_of
from squall.chaos.trial import SETTINGS, Subject
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology, check_topology
from squall.engine.errors import UsageError
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.testing.run_leftovers import left_behind


class FixtureChaos:
    """Runs topologies under faults. Components may be defined in the test's own module."""

    def __init__(
        self, directory: Path, module: ModuleType | None, *, faults: str = "all", seeds: Iterable[int] = range(3),
        for_secs: float = 2.0, sinks: Sequence[str] = (), nodes: int = 1,
    ) -> None:
        """`directory`: for logs of emits and receipts. The rest: defaults of `run`, from the test's marker."""
        self._directory = directory
        self._module = module
        self._faults = faults
        self._seeds = seeds
        self._for_secs = for_secs
        self._sinks = sinks
        self._nodes = nodes

    def run(
        self, topology: Topology, faults: str | None = None, seeds: Iterable[int] | None = None, *,
        for_secs: float | None = None, sinks: Sequence[str] | None = None, nodes: int | None = None,
        config: Config | None = None,
    ) -> list[SeedResult]:
        """Prove for each seed that nothing is lost: see docs/chaos.md. `faults` is the command's mix.

        Defaults come from the test's marker, or are all faults, three seeds of two seconds, and one node. The test
        fails at the first failed seed. UsageError if nothing can be proved of the topology.
        """
        tried = list(self._seeds if seeds is None else seeds)
        if not tried:
            raise UsageError("squall_chaos.run has no seeds: nothing would be proved; give it one or more numbers")
        check_topology("squall_chaos.run", topology)
        looks_at = tuple(sinks or self._sinks) or sinks_of(topology)
        subject = Subject(topology, self._module, config or Config(**SETTINGS), looks_at, nodes or self._nodes)
        kinds = kinds_of(faults or self._faults)
        proof = Proof(subject, kinds, for_secs or self._for_secs, self._directory)
        expected = proof.learn()
        results = []
        for seed in tried:
            result = proof.try_seed(seed, expected)
            if not result.good:
                pytest.fail(f"{seed_text(result)}\n{timeline_text(result)}", pytrace=False)
            results.append(result)
        return results


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
