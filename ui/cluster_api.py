"""What the REST API offers and the pages show: one function for each question and each order.

Guarantees: answers are documents of the types that JSON knows. A mistake in an order is a UsageError before anything
changes; a cluster that does not answer is a ClusterError. The pages have no other way to the cluster.

Relies on: `Sampler` for what is asked again and again. Thread: any; orders wait for Nimbus, so not an event loop's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from squall.engine.errors import UsageError
from squall.scheduler.client.log_tail import LogTail
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.rates import component_rates
from squall.scheduler.client.standing import limit_secs
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.fault import parse
from squall.scheduler.records.dead_letters import DeadLetters
from squall.ui.processes import Processes
from squall.ui.sampler import Sample, Sampler

_LINES = 1000
"""Most lines of logs in one answer."""


class ClusterApi:
    """One cluster, to be asked and told."""

    def __init__(self, sampler: Sampler, read_only: bool = False) -> None:
        self.sampler = sampler
        self.run_dir = sampler.run_dir
        self.read_only = read_only
        self._processes = Processes(sampler.run_dir)

    # ---- questions ----

    def cluster(self) -> dict[str, Any]:
        """The cluster: nodes, slots, topologies, deaths of daemons, faults."""
        return self.sampler.cluster()

    def topologies(self) -> list[dict[str, Any]]:
        """A row for each topology."""
        return [self._row(self.sampler.latest(name)) for name in self.sampler.names()]

    def _row(self, sample: Sample) -> dict[str, Any]:
        document = sample.document
        return {
            **{key: document[key] for key in (
                "name", "id", "status", "uptime_secs", "workers_wanted", "restarts_total", "acked", "failed", "pending",
                "dead_letters", "rates", "latency_ms",
            )},
            "workers_ready": sum(worker["state"] == "ready" for worker in document["workers"]),
            "tasks": sum(component["tasks"] for component in document["components"].values()),
            "executors": len(document["executors"]),
        }

    def topology(self, name: str) -> dict[str, Any]:
        """A topology as `squall status --json` describes it; `recent`: rates of each component since the look before,
        a second ago as a rule."""
        sample = self.sampler.latest(name)
        return {
            **sample.document, "at_unix_secs": sample.at_unix_secs,
            "recent": component_rates(sample.before, sample.document, sample.secs),
        }

    def logs(self, name: str, worker: str = "", search: str = "", limit: int = _LINES) -> list[dict[str, str]]:
        """The last lines of its workers' logs that match a regular expression, oldest first for each worker."""
        try:
            pattern = re.compile(search)
        except re.error as error:
            raise UsageError(f"{search!r:.80} is no regular expression: {error}") from None
        tail = LogTail(self.run_dir.worker_logs(self.sampler.latest(name).document["id"]), from_start=True)
        found = [
            {"worker": who, "line": line} for who, line in tail.poll() if worker in ("", who) and pattern.search(line)
        ]
        return found[-min(limit, _LINES):]

    def dead_letters(self, name: str) -> list[dict[str, Any]]:
        """The messages that were given up."""
        letters, _ = self._ledger(name).look()
        return [letter.public() for letter in letters]

    def processes(self) -> list[dict[str, Any]]:
        """The cluster's processes, with the CPU and memory that they take."""
        return self._processes.rows()

    def faults(self) -> list[dict[str, Any]]:
        """Every fault that can be injected."""
        return [asdict(kind) for kind in CATALOGUE.values()]

    # ---- orders ----

    def activate(self, name: str) -> str:
        """Let the spouts emit; returns the status."""
        return self._client.activate(name).status

    def deactivate(self, name: str) -> str:
        """Stop the spouts; returns the status."""
        return self._client.deactivate(name).status

    def rebalance(
        self, name: str, workers: int | None = None, executors: Mapping[str, int] | None = None,
        wait_secs: float | None = None,
    ) -> str:
        """Have it drained and spread anew, for at most `wait_secs` (its message timeout); returns the status."""
        record = self._client.get_topology(name).topology
        wanted = record.conf["workers"] if workers is None else workers
        return self._client.rebalance(name, wanted, dict(executors or {}), limit_secs(wait_secs, record)).status

    def kill(self, name: str, wait_secs: float | None = None) -> str:
        """Have it drained and removed, for at most `wait_secs` (its message timeout); returns the status."""
        record = self._client.get_topology(name).topology
        return self._client.kill_topology(name, limit_secs(wait_secs, record)).status

    def reset(self, name: str) -> str:
        """Have slots that were given up start anew; returns the status."""
        return self._client.reset(name).status

    def inject(self, line: str) -> list[dict[str, Any]]:
        """Begin a fault, as in `squall inject LINE`."""
        return [msgspec.to_builtins(fault) for fault in self._client.inject(parse(line))]

    def heal(self, targets: Sequence[str] = ()) -> list[dict[str, Any]]:
        """End faults in force, as in `squall heal`."""
        return [msgspec.to_builtins(fault) for fault in self._client.heal(targets)]

    def replay(self, name: str, ids: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Give dead letters back to its spouts: these, or all."""
        self._check_may_change()
        return [letter.public() for letter in self._ledger(name).give_back(ids)]

    def _check_may_change(self) -> None:
        if self.read_only:
            raise UsageError("this page is read-only: it was started with --read-only")

    @property
    def _client(self) -> NimbusClient:
        self._check_may_change()
        return self.sampler.client()

    def _ledger(self, name: str) -> DeadLetters:
        return DeadLetters(self.run_dir.topology_state(self.sampler.latest(name).document["name"]))
