"""What a run or a stop leaves undone is named, once, and a run that leaves something does not end with exit code 0."""

from __future__ import annotations

import json
import signal

import pytest
from click.testing import CliRunner

from squall import Spout, SpoutCollector, Topology
from squall.cli.cluster_access import left_document, left_pending
from squall.cli.output import exit_code
from squall.cli.running.run import run_command
from squall.engine.report.metrics import TASK_COUNTERS, Unfinished
from squall.engine.report.run_report import FLOW_COUNTERS, TaskReading, build_report, unfinished
from tests.unit.rig import Does, chain, keeps


def reading(kind: str, alive: bool = True, **counters: int) -> TaskReading:
    zeros = dict.fromkeys((*TASK_COUNTERS, *FLOW_COUNTERS), 0)
    return TaskReading(1, kind, kind, "n:1", {**zeros, **counters}, [], alive)


@pytest.mark.parametrize(
    ("counters", "code"),
    [
        ({"acked": 5}, 0),
        ({"acked": 4}, 4),
        ({"acked": 4, "failed": 1, "waiting": 1}, 4),
        ({"alive": False, "acked": 4}, 4),
        ({"acked": 4, "abandoned": 1, "replayed": 1}, 0),
        ({"abandoned": 2, "failed": 3}, 4),
        ({"acked": 3, "dead_letters": 1}, 3),
        ({"acked": 3, "failed": 1, "unreplayed": 1}, 1),
    ],
)
def test_only_a_run_without_open_messages_ends_with_0(counters: dict[str, int], code: int) -> None:
    spout = reading("spout", **{"tracked": 5, **counters})  # type: ignore[arg-type]
    report = build_report("t", [spout], 1.0, [], False, idle=True)
    assert exit_code(report) == code
    assert report.emitted == 5
    assert report.orphaned == (0 if spout.alive else 1)


def test_a_stop_counts_tuples_without_a_tree_too() -> None:
    readings = [
        reading("spout", tracked=5, acked=2, failed=1, waiting=1),
        reading("spout", alive=False, tracked=3, acked=2),
        reading("bolt", untracked_sent=20, untracked_dropped=1, untracked_executed=2),
    ]
    left = unfinished(readings)
    assert left_document(left) == {"pending": 3, "waiting": 1, "untracked_unexecuted": 17}


def test_tuples_that_nobody_emits_again_are_told() -> None:
    assert left_pending(Unfinished(0, 0, 17), 0.0, 0.1) == (
        "nothing was pending; since it was submitted 17 untracked tuples were not executed, as far as is known: "
        "no spout emits such tuples again"
    )
    assert "; since it was submitted 1 untracked tuple was not executed" in left_pending(Unfinished(2, 0, 1), 0.0, 0.1)


MOST_PENDING = 100


class Count(Spout):
    """1, 2, 3 ... for ever; the run is cut by SIGTERM when so many may be pending."""

    outputs = ("n",)

    def open(self, conf: object, context: object, collector: SpoutCollector) -> None:
        self.collector, self.n = collector, 0

    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.n,), message_id=self.n)
        if self.n == MOST_PENDING:
            signal.raise_signal(signal.SIGTERM)


def forgets() -> Topology:
    """For the command line: nothing is ever acked."""
    return chain(Count(), Does(keeps)).build()


def test_a_run_that_is_cut_with_messages_pending_says_how_many() -> None:
    command = [f"{__file__}:forgets", "--local", "--json", "--drain-secs", "0.05"]
    run = CliRunner().invoke(run_command, [*command, "--set", f"max_spout_pending={MOST_PENDING}"])
    report = json.loads(run.stdout)
    assert (run.exit_code, report["pending"], report["acked"]) == (4, MOST_PENDING, 0)
    assert run.stderr == (
        "stopped with unfinished messages: 100 pending; a source that can be read again emits them again, "
        "any other does not\n"
    )
