"""Numbers that flow through a cluster while processes of it are killed, and their exact account.

Guarantees of `Scene.finish`: every number was acked, and was seen by the last bolt as it was sent; nothing is pending;
the history of all slots, since the cluster was started, obeys its rules.
"""

from __future__ import annotations

from pathlib import Path

from squall.engine.errors import ClusterError
from tests.chaos.numbers import LIMIT
from tests.process.history_check import broken_rules
from tests.process.parts import notes
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

TOPOLOGY = "tests/chaos/numbers.py"
WORKERS = 2
MORE = 500
"""How many numbers come after the faults: more than are under way."""


class Scene:
    """A cluster, and a topology "numbers" on it."""

    def __init__(self, cluster: Standing, out: Path) -> None:
        self.cluster = cluster
        self.run_dir = cluster.run_dir
        self.out = out

    def submit_numbers(self, *settings: str) -> None:
        arguments = ("--workers", str(WORKERS), *settings, "--", str(self.out), "0.001")
        self.cluster.ok("submit", TOPOLOGY, "--name", "numbers", *arguments)

    def acked(self) -> list[int]:
        return notes(self.out, "acked")

    def workers(self, name: str = "numbers") -> dict[str, int]:
        """Pids of the workers that are ready, by slot."""
        try:
            rows = self.cluster.described(name).workers
        except ClusterError:
            return {}
        return {row.worker: row.pid for row in rows if row.state == "ready"}

    def running(self, name: str = "numbers", workers: int = WORKERS) -> dict[str, int]:
        """Wait for them."""
        return wait_for(f"{workers} workers of {name}", lambda: len(found := self.workers(name)) == workers and found)

    def end(self) -> int:
        """Set the last number: until then there is none, however slow the machine is."""
        limit = max(self.acked()) + MORE
        temporary = self.out / "limit.new"
        temporary.write_text(str(limit))
        temporary.rename(self.out / LIMIT)
        return limit

    def await_drained(self) -> None:
        wait_for("the end", lambda: self.cluster.described("numbers").drained)

    def finish(self, limit: int) -> None:
        """The exact account."""
        self.await_drained()
        assert self.cluster.described("numbers").pending == 0
        # One task of the source may have been beyond the limit before it was set.
        acked = set(self.acked())
        assert acked >= set(range(limit)), f"not acked: {sorted(set(range(limit)) - acked)[:10]}"
        assert acked <= {n for _, n in notes(self.out, "seen")}
        assert self.cluster.json("kill", "numbers")["pending"] == 0
        assert broken_rules(self.run_dir) == []
