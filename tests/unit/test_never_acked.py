"""What the operator reads of code that does not do its part: a bolt that never acks, one that reads from a terminal."""

from __future__ import annotations

import bdb

from squall.cli.shown.report_text import never_acked_lines
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import readings_of
from squall.engine.foreign.text import text_of_error
from squall.engine.report.run_report import build_report
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain


def lines_of(rig: Rig) -> list[str]:
    report = build_report("t", readings_of(rig.core), 1.0, [], False)
    return list(never_acked_lines(report.to_dict()))


def test_a_bolt_that_never_acks_is_named_when_trees_time_out() -> None:
    spout = Feeder()
    builder = chain(spout, DoesBasic(lambda bolt, tup, collector: collector.emit(tup.values), ("n",)))
    builder.set_bolt("forgets", Does(lambda bolt, tup: None)).shuffle_grouping("bolt-1")
    builder.set_bolt("acks", Does(acks)).shuffle_grouping("bolt-1")
    rig = Rig(builder, message_timeout_secs=10)
    for number in range(3):
        spout.feed(number, id=number)
    rig.settle()
    assert lines_of(rig) == []
    rig.advance(10)
    (line,) = lines_of(rig)
    assert line == (
        "forgets has never acked any of its 3 tuples, and 3 trees timed out: a Bolt must ack each tuple "
        "(collector.ack); a BasicBolt need not"
    )


def test_a_bolt_that_keeps_some_is_not() -> None:
    spout = Feeder()
    keeps_zero = Does(lambda bolt, tup: bolt.collector.ack(tup) if tup[0] else None)
    rig = Rig(chain(spout, keeps_zero), message_timeout_secs=10)
    spout.feed(0, id=0)
    spout.feed(1, id=1)
    rig.settle()
    rig.advance(10)
    assert spout.reasons == [(0, "timeout")]
    assert lines_of(rig) == []


def test_what_reads_from_a_terminal_says_so() -> None:
    hint = " (a worker has no terminal to read from; use `squall run --local`)"
    assert text_of_error(bdb.BdbQuit()) == "BdbQuit" + hint
    assert text_of_error(EOFError("EOF when reading a line")) == "EOFError: EOF when reading a line" + hint
    assert text_of_error(EOFError("pickle")) == "EOFError: pickle"
    assert str(TaskCrashed("count", 3, "execute", bdb.BdbQuit())).endswith(f"BdbQuit{hint} in execute")
