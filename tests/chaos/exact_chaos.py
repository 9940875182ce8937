"""State and windows for `squall chaos --result`: what they write must be the same after every run, row by row.

    squall chaos tests/chaos/exact_chaos.py:words --seed 1 --for 3s --result tests/chaos/exact_chaos.py:rows -- {}

`kafka_windows` and `joined` read a topic that `tests/chaos/test_exact_streams.py` fills. Their results are read by
functions of their own, which compare them with what the input alone says.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from squall import BasicCollector, FileSink, StatefulBolt, Topology, TopologyBuilder, Tuple, WindowedBolt
from squall.connect import KafkaSource
from tests.chaos import stream_parts as streams
from tests.process import state_parts as parts
from tests.process import window_parts as windowed

TEXTS = 150


class Numbered(StatefulBolt):
    """Emits each word with its number: a change that is lost, or made twice, moves all that follow."""

    outputs = ("word", "number")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        self.state[word] = self.state.get(word, 0) + 1
        collector.emit((word, self.state[word]))


def words(args: list[str]) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("texts", parts.Texts(TEXTS), parallelism=2)
    builder.set_bolt("split", parts.Split(), parallelism=2).shuffle_grouping("texts")
    count = builder.set_bolt("count", Numbered(), parallelism=2)
    count.fields_grouping("split", "word").fields_grouping("split", "word", stream="other")
    builder.set_bolt("file", FileSink(args[0]), parallelism=2).fields_grouping("count", "word", "number")
    return builder.build()


def _streams(args: list[str], bolt: WindowedBolt, *others: str) -> Topology:
    servers, number, out = args[0], int(args[1]), args[2]
    plan, builder = streams.plan_of(number), TopologyBuilder()
    config = {"fetch.message.max.bytes": plan.fetch_bytes}
    source = KafkaSource(servers, f"exact-{number}", decode="json", until_end=True, config=config)
    builder.set_spout("topic", source, parallelism=plan.tasks)
    builder.set_bolt("unpack", streams.Unpack(), parallelism=2).shuffle_grouping("topic")
    if others:
        builder.set_spout("fees", streams.Fees(number), parallelism=plan.tasks)
    bolt.with_key("user").with_timestamp_field("at").with_lag(secs=streams.LAG_MS / 1000).with_late_stream("late")
    bolt.with_sliding_window(secs=streams.LENGTH_MS / 1000, slide_secs=plan.slide_ms / 1000)
    windows = builder.set_bolt("windows", bolt, parallelism=2)
    for source_id in ("unpack", *others):
        windows.fields_grouping(source_id, "user")
    file = builder.set_bolt("file", FileSink(out), parallelism=2).fields_grouping("windows", "user")
    file.fields_grouping("windows", "user", stream="late")
    return builder.build()


def kafka_windows(args: list[str]) -> Topology:
    return _streams(args, windowed.Folded() if streams.plan_of(int(args[1])).folds else windowed.Sums())


def joined(args: list[str]) -> Topology:
    return _streams(args, streams.Joined(), "fees")


def rows(args: list[str]) -> Counter[str]:
    """The lines that the sink has written, and how often each is there."""
    return Counter(line for path in Path(args[0]).glob("*.jsonl") for line in path.read_text().splitlines())


def _checked(args: list[str], wanted: Counter[str]) -> Counter[str]:
    """The lines that the sink has written. ValueError if there are some, and not those that are wanted."""
    lines = rows(args[2:])
    if lines and lines != wanted:
        missing, extra = wanted - lines, lines - wanted
        raise ValueError(f"{missing.total()} missing, as {[*missing][:2]}; {extra.total()} too many, as {[*extra][:2]}")
    return lines


def checked_kafka_windows(args: list[str]) -> Counter[str]:
    return _checked(args, streams.window_lines(int(args[1])))


def checked_joined(args: list[str]) -> Counter[str]:
    return _checked(args, streams.joined_lines(int(args[1])))
