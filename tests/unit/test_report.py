"""The run report: sums over the right tasks, its JSON document and schema, and the lines that people read."""

from __future__ import annotations

import bdb
import pickle

import pytest

from squall import RunReport
from squall.cli.report_text import never_acked_lines
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import readings_of
from squall.engine.foreign.text import text_of_error
from squall.engine.report.metrics import TASK_COUNTERS, TaskStats
from squall.engine.report.run_report import FLOW_COUNTERS, Restart, TaskReading, build_report
from tests.unit.lab import forwards
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks
from tests.unit.wired import wired


def reading(
    task: int, component: str, kind: str, worker: str, latencies_ms: tuple[int, ...] = (), **counters: int
) -> TaskReading:
    stats = TaskStats()
    for latency in latencies_ms:
        stats.observe_ns(latency * 1_000_000)
    counters = {**dict.fromkeys((*TASK_COUNTERS, *FLOW_COUNTERS), 0), **counters}
    return TaskReading(task, component, kind, worker, counters, stats.histogram)


@pytest.fixture
def report() -> RunReport:
    return build_report(
        "word-count",
        [
            reading(
                1, "lines", "spout", "n:1", (10,) * 98,
                emitted=102, tracked=100, acked=98, failed=2, waiting=1, timed_out=1, replayed=2,
            ),
            reading(2, "lines", "spout", "n:2", (1000,), emitted=11, tracked=11, acked=1, abandoned=2, dead_letters=1),
            reading(3, "split", "bolt", "n:1", emitted=500, executed=100, execute_ns=1_000_000_000, acked=99, failed=1),
            reading(4, "split", "bolt", "n:2", emitted=50, executed=100, execute_ns=3 * 10**9, in_queue=4, errors=2),
        ],
        duration_secs=4.0,
        restarts=[Restart("n:2", "killed", 1.5, 0.02)],
        drained=False,
    )


def test_the_first_counts_are_messages_of_the_spouts(report: RunReport) -> None:
    assert (report.emitted, report.acked, report.failed, report.waiting) == (111, 99, 1, 1)
    assert (report.timed_out, report.replayed, report.pending, report.dead_letters) == (1, 2, 7, 1)
    assert (report.abandoned, report.untracked_emitted) == (2, 2)
    assert (report.topology, report.duration_secs, report.drained) == ("word-count", 4.0, False)


def test_latencies_are_those_of_all_messages(report: RunReport) -> None:
    latency = report.latency_ms
    assert latency["p50"] == pytest.approx(10, rel=1 / 16)
    assert latency["p90"] == pytest.approx(10, rel=1 / 16)
    assert latency["max"] == pytest.approx(1000, rel=1 / 16)
    assert sorted(millis for millis in latency.values() if millis is not None) == list(latency.values())


def test_components_are_sums_over_their_tasks(report: RunReport) -> None:
    split = report.components["split"]
    assert (split.kind, split.tasks, split.emitted, split.executed) == ("bolt", 2, 550, 200)
    assert (split.acked, split.failed, split.errors) == (99, 1, 2)
    assert split.execute_latency_ms == pytest.approx(20.0)
    assert split.capacity == pytest.approx(0.5)
    assert report.components["lines"].execute_latency_ms is None


@pytest.mark.parametrize("forgets_all", [True, False])
def test_a_bolt_that_never_acks_is_named_when_trees_time_out_and_one_that_keeps_some_is_not(forgets_all: bool) -> None:
    def lines() -> list[str]:
        return list(never_acked_lines(build_report("t", readings_of(rig.core), 1.0, [], False)))

    spout, forgets = Feeder(), Does(lambda bolt, tup: forgets_all or (tup[0] and bolt.collector.ack(tup)))
    builder = wired(
        spout=(spout, 1), middle=(DoesBasic(forwards, ("n",)), 1, "shuffle spout"),
        forgets=(forgets, 1, "shuffle middle"), acks=(Does(acks), 1, "shuffle middle"),
    )
    rig = Rig(builder, message_timeout_secs=10)
    for number in range(3):
        spout.feed(number, id=number)
    rig.settle()
    assert lines() == []
    rig.advance(10)
    assert len(spout.failures) == (3 if forgets_all else 1)
    said = "forgets has never acked any of its 3 tuples, and 3 trees timed out: a Bolt must ack each tuple (collector"
    assert [line.partition(".")[0] for line in lines()] == [said] * forgets_all


def test_what_reads_from_a_terminal_says_so() -> None:
    hint = " (a worker has no terminal to read from; use `squall run --local`)"
    assert text_of_error(bdb.BdbQuit()) == "BdbQuit" + hint
    assert text_of_error(EOFError("EOF when reading a line")) == "EOFError: EOF when reading a line" + hint
    assert text_of_error(EOFError("pickle")) == "EOFError: pickle"
    assert str(TaskCrashed("count", 3, "execute", bdb.BdbQuit())).endswith(f"BdbQuit{hint} in execute")


def test_a_name_that_other_processes_do_not_find_says_where_they_would() -> None:
    with pytest.raises(pickle.PicklingError) as refused:
        pickle.dumps(eval("lambda: 1", {"__name__": __name__}))
    assert text_of_error(refused.value).endswith(", define it in a module beside the topology's file)")
