"""What people read of failures and metrics, in reports and in `squall status`."""

from __future__ import annotations

import re

import pytest

from squall.cli.shown.report_text import emitted_text, failure_lines, metric_lines
from squall.engine.api.builder import TopologyBuilder
from squall.engine.core.local import LocalRunner
from squall.engine.errors import FailedTuple
from tests.unit.rig import DoesBasic, Feeder


class Finite(Feeder):
    """One good message and one that its bolt refuses, once."""

    def open(self, conf: object, context: object, collector: object) -> None:
        super().open(conf, context, collector)  # type: ignore[arg-type]
        self.feed("good", id=1)
        self.feed("bad", id=2)

    @property
    def exhausted(self) -> bool:
        return not self.queue

    @exhausted.setter
    def exhausted(self, value: bool) -> None:
        """Known from the queue."""


def refuse(bolt: DoesBasic, tup: object, collector: object) -> None:
    bolt.context.counter("seen").inc()
    bolt.context.histogram("size").update(4)
    if tup[0] == "bad":  # type: ignore[index]
        raise FailedTuple("not this one")


def test_lines_name_component_reason_and_message() -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", Finite())
    builder.set_bolt("bolt", DoesBasic(refuse)).shuffle_grouping("source")
    with LocalRunner(builder.build(), copy=lambda spec: spec.component) as runner:
        document = runner.run(timeout_secs=10).to_dict()
    (failures,) = failure_lines(document)
    assert failures.startswith("failures of bolt: 1 failed; the last at 0.")
    assert failures.endswith("s was message 2 of source, failed in bolt[2] on local:0: not this one (attempt 1)")
    assert list(metric_lines(document)) == [
        "bolt: seen = 2", "bolt: size = count 2, mean 4, p50 4, p90 4, p99 4, max 4",
    ]  # fmt: skip


def test_a_report_without_either_says_nothing() -> None:
    document = {"failures": {}, "links": {"lost": 0, "repeated": 0}, "metrics": {}}
    assert [*failure_lines(document), *metric_lines(document)] == []
    document["links"] = {"lost": 1200, "repeated": 0}
    assert list(failure_lines(document)) == ["links: 1,200 lost, 0 repeated"]


@pytest.mark.parametrize("name", ["acked", "failed", "dead_letters", "waiting", "pending", "abandoned"])
def test_the_numbers_in_a_line_add_up_to_its_emits(name: str) -> None:
    columns = dict.fromkeys(("acked", "failed", "dead_letters", "waiting", "pending", "abandoned"), 1000) | {name: 7}
    emits, equals, fates = emitted_text({"emitted": 5007, "replayed": 0, **columns}).partition(" = ")
    assert (emits, equals) == ("5,007 emitted (0 replayed)", " = ")
    assert sum(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\b", fates)) == 5007
