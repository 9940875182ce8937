"""A topology on Spark's levels without Spark: the product's stages and decisions, with lists in place of partitions."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable

from squall import Config, Topology
from squall.engine.report.run_report import RunReport
from squall.pipeline.on_spark.batch_control import Control, after, doubts, next_turn, report_of
from squall.pipeline.on_spark.host import Fatal, HostTasks, HostTurn, WorkerReport
from squall.pipeline.on_spark.layout import lay_out
from squall.pipeline.on_spark.stage import END, REPORT, Row, run_slot


class Levels:
    """One topology, batch by batch."""

    def __init__(self, topology: Topology, config: Config | None = None, batch_rows: int = 100) -> None:
        self.layout = lay_out(topology, config or Config())
        self.around = HostTasks(self.layout, "test", None)
        self.control = Control()
        self.batch_rows = batch_rows
        self.batch_secs = 0.1
        self.stored: dict[str, list[Row]] = {"": []}
        """The rows of each batch, as in a checkpoint."""
        self.said: list[str] = []
        self.reports: dict[int, WorkerReport] = {}
        self.twice: Callable[[int, int], bool] = lambda level, slot: False
        """Of which workers, by level and slot, half the rows are those of another execution."""

    def execute(self, turn: HostTurn) -> list[Row]:
        """Run the levels; nothing is changed by it."""
        rows: list[Row] = []
        for level, workers in enumerate(self.layout.levels):
            at = self.control.bolts_at if level else self.control.spouts_at
            rows = rows + [row for row in self.stored[at] if row.level == level]
            rows.sort(key=lambda row: (row.kind, row.source, row.seq))
            made: list[Row] = []
            for slot in range(len(workers)):
                mine = [row for row in rows if row.slot % len(workers) == slot]
                out = list(run_slot(self.around, level, slot, turn, mine))
                if self.twice(level, slot):
                    again = list(run_slot(self.around, level, slot, turn, mine))
                    out = out[::2] + again[1::2]
                made += out
            rows = made
        return rows

    def batch(self) -> Control:
        """Run a batch, and decide what follows."""
        turn = next_turn(self.control, self.control.clock_ns, True, self.batch_rows)
        rows = self.execute(turn)
        reports = {report.worker: report for report in (pickle.loads(row.body) for row in rows if row.kind == REPORT)}
        for report in reports.values():
            if isinstance(report, Fatal):
                raise AssertionError(report.text)
        counts = Counter((row.source, row.nonce) for row in rows if row.kind != REPORT)
        if why := doubts(self.layout, reports, counts):
            raise Mixed(why)
        at = f"batch {turn.number}"
        self.stored[at] = [row for row in rows if row.level != END]
        self.reports = reports
        self.said += [line for worker in sorted(reports) for line in reports[worker].said.splitlines()]
        self.control = after(self.control, turn, reports, at, turn.number, self.batch_secs, self.layout)
        return self.control

    def run(self, most: int = 200) -> RunReport:
        """Run until all is closed."""
        for _ in range(most):
            if self.batch().closed:
                return report_of(self.control, "test")
        raise AssertionError(f"not done after {most} batches: {self.control}")


class Mixed(Exception):
    """A batch that does not count."""
