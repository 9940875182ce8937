"""The object of fixture `squall_chaos`: runs a test's topology under random faults, with a proof for each seed.

Guarantees: `run` returns when every seed was tried, or fails the test at the first failed seed. Either way it leaves no
process and no file but a failed seed's logs of emits and receipts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall.chaos.mix import kinds_of
from squall.chaos.proof import Proof, SeedResult
from squall.chaos.taps import sinks_of
from squall.chaos.text import seed_text, timeline_text
from squall.chaos.trial import SETTINGS, Subject
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology, check_topology
from squall.engine.errors import UsageError

_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("faults", lambda value: isinstance(value, str), "a text as for --mix, such as 'kill' or 'process,link'"),
    ("for_secs", lambda value: _is_number(value) and 0 < value < math.inf, "a number of seconds above 0"),
    ("nodes", lambda value: type(value) is int and value >= 1, "an integer from 1 up"),
)
"""Argument -> whether a value is allowed, and which are."""
DEFAULTS: dict[str, Any] = {"faults": "all", "seeds": range(3), "for_secs": 2.0, "sinks": (), "nodes": 1}


class FixtureChaos:
    """Runs topologies under faults. Components may be defined in the test's own module."""

    def __init__(self, directory: Path, module: ModuleType | None, defaults: Mapping[str, Any]) -> None:
        """`directory`: for logs of emits and receipts. `defaults`: for arguments that `run` is not given."""
        self._directory = directory
        self._module = module
        self._defaults = defaults

    def run(
        self, topology: Topology, faults: str | None = None, seeds: Iterable[int] | None = None, *,
        for_secs: float | None = None, sinks: Sequence[str] | None = None, nodes: int | None = None,
        config: Config | None = None,
    ) -> list[SeedResult]:
        """Prove for each seed that nothing is lost: see docs/chaos.md. `faults` is the command's mix.

        Defaults come from the test's marker, or are all faults, three seeds of two seconds, and one node. The test
        fails at the first failed seed. UsageError if nothing can be proved of the topology.
        """
        given = {"faults": faults, "seeds": seeds, "for_secs": for_secs, "sinks": sinks, "nodes": nodes}
        asked = {**DEFAULTS, **self._defaults, **{name: value for name, value in given.items() if value is not None}}
        tried = _checked_seeds(asked["seeds"])
        for name, check, allowed in _CHECKS:
            if not check(asked[name]):
                raise UsageError(f"squall_chaos.run has {name} {asked[name]!r:.80}; allowed: {allowed}")
        check_topology("squall_chaos.run", topology)
        looks_at = tuple(asked["sinks"]) or sinks_of(topology)
        subject = Subject(topology, self._module, config or Config(**SETTINGS), looks_at, asked["nodes"])
        proof = Proof(subject, kinds_of(asked["faults"]), asked["for_secs"], self._directory)
        expected = proof.learn()
        results = []
        for seed in tried:
            result = proof.try_seed(seed, expected)
            if not result.good:
                document = result.to_dict()
                pytest.fail(f"{seed_text(document)}\n{timeline_text(document)}", pytrace=False)
            results.append(result)
        return results


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _checked_seeds(seeds: Any) -> list[int]:
    try:
        tried = list(seeds)
    except TypeError:
        tried = []
    if not tried or not all(isinstance(seed, int) and seed >= 0 for seed in tried):
        raise UsageError(f"squall_chaos.run has seeds {seeds!r:.80}; allowed: one or more integers from 0 up")
    return tried
