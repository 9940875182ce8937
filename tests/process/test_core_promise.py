"""The promise that all else serves, on a real cluster: whoever is killed, state counts each record once.

`tests/chaos` has the same under every fault, for every kind of state.
"""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import BasicCollector, StatefulBolt, Topology, TopologyBuilder, TopologyContext, Tuple, spout
from squall.cli.cluster_access import job_of
from squall.scheduler.common.role import RoleKind, processes_of, role_of
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

VICTIMS = RoleKind.WORKER, RoleKind.FORKING_PARENT, RoleKind.SUPERVISOR, RoleKind.NIMBUS, RoleKind.KEEPER
"""The keeper is last: nobody starts it again."""
PART = 2000
USERS = 7


def numbers_by_parts(start: int, gates: Path) -> Iterator[int | None]:
    """Numbers; those of each part when its file is there."""
    for number in range(start, PART * len(VICTIMS)):
        while not (gates / str(number // PART)).exists():
            yield None
        yield number


class Count(StatefulBolt):
    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.executed = context.counter("executed")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        user = tup["number"] % USERS
        self.state[user] = self.state.get(user, 0) + 1
        self.executed.inc()


def topology(arguments: list[str]) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout("number")(functools.partial(numbers_by_parts, gates=Path(arguments[0]))))
    builder.set_bolt("count", Count()).global_grouping("numbers")
    return builder.build()


def pid_of(cluster: Standing, kind: RoleKind) -> int:
    """One of that kind; 0 if there is none."""
    roles = {each.pid: role_of(each) for each in processes_of(cluster.run_dir)}
    return next((pid for pid, role in roles.items() if role is not None and role.kind is kind), 0)


def test_state_counts_each_record_once_whoever_is_killed(tmp_path: Path) -> None:
    with directory() as cluster:
        cluster.up(slots=1)
        cluster.ok("submit", __file__, "--name", "one", "--", tmp_path)
        for part, kind in enumerate(VICTIMS):
            (tmp_path / str(part)).touch()
            wait_for("acks of this part", lambda part=part: cluster.described("one").acked > PART * part)
            killed = pid_of(cluster, kind)
            os.kill(killed, signal.SIGKILL)
            if kind is not RoleKind.KEEPER:
                wait_for("its successor", lambda kind=kind, pid=killed: pid_of(cluster, kind) not in (0, pid))
        wait_for("the end", lambda: cluster.described("one").drained)
        assert cluster.described("one").restarts_total == 1
        with job_of(str(cluster.path), "one") as job:
            assert job.state("count") == Counter(number % USERS for number in range(PART * len(VICTIMS)))
            # What the killed worker had counted is there too.
            assert job.stats().metrics["count"]["executed"] >= PART * len(VICTIMS)  # type: ignore[operator]
