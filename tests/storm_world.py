"""What Storm's own integration tests do, written once for every place a topology can run in.

A scenario (tests/storm_{acking,streams,groupings}.py) takes a `World`: a simulated cluster
(tests/unit/test_storm_topologies.py) or real worker processes (tests/process/test_storm_topologies.py). Components are
found by name in workers, and write down what they see in files.

Storm's test -> ours; "both" means simulated and on real processes. Deliberate differences are told in the last column.

| Storm | here | where |
| --- | --- | --- |
| testBasicTopology | basic_topology | simulated |
| testMultiTasksPerCluster | several_tasks_per_executor | simulated |
| testTimeout | timeout | both; failed at the timeout, not between it and twice it |
| testResetTimeout | reset_timeout | simulated |
| testValidateTopologystructure | unit/test_builder | every mistake at once |
| testSystemStream | ticks_are_beside_the_data | both; ticks need no subscription, `__system` cannot have one |
| testAcking | acking | both |
| testAckBranching | acking | both |
| testAckingSelfAnchor | acking_self_anchor | simulated |
| testHooks | unit/test_hooks | messages to the acker do not pass the emit hook |
| testSubmitInactiveTopology | process/test_storm_life | tasks are opened at once, so that `open` fails at submission |
| testComponentSpecificConfig | unit/test_core, unit/test_config | |
| TestingTest (simulated time, clusters) | unit/test_simulated_cluster | |
| testDisableTupleTimeout | none | a timeout of a day does it |
| testCompleteTopology.. | unit/test_complete_topology | over 1 to 3 simulated workers |
| SpoutExecutorTest (one rotation per tick) | unit/test_pending | there is no rotation: each tree has its deadline |
| Acker, RotatingMap (no test) | unit/test_acker | |
| TickTupleTest | ticks | both |
| testShuffle | unit/test_groupings | |
| testFieldGrouping (byte[] keys) | fields_by_content | simulated |
| testCustomGroupings (NGrouping) | copies_of_a_custom_grouping | simulated |
| ShuffleGroupingTest, PartialKeyGroupingTest .. | unit/test_groupings | |
| LoadAwareShuffleGroupingTest | none | there is no load-aware grouping |
| JCQueueTest, JCQueueBackpressureTest | order_per_producer_and_task | both; on processes with the smallest window |
| BackPressureTrackerTest | unit/test_link, process/test_memory_bound | credit in place of a tracker |
| MessagingTest, NettyTest | process/test_data_plane_* | |
| ReportErrorTest | report_error_and_failed_tuple | both |
| local or shuffle (no test) | local_tasks_are_preferred | both |
| Kryo, worker hooks, windows, state, event logger | none | no such feature |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from squall import TopologyBuilder
from squall.testing import FeederSpout


class World(Protocol):
    """Where a scenario runs."""

    directory: Path
    timeout_secs: float
    """A message timeout that can be waited for."""

    def feeder(self, *fields: str) -> FeederSpout: ...

    def start(self, builder: TopologyBuilder, **settings: Any) -> None: ...

    def settle(self) -> None:
        """Let everything that was fed be emitted, and processed as far as it can be."""

    def until(self, what: str, condition: Callable[[], object]) -> None: ...

    def finish(self) -> None:
        """Run until drained, and have every task closed."""

    @property
    def reported(self) -> str:
        """The texts of reported errors, somewhere in here."""
