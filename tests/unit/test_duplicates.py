"""What docs/guarantees.md says of duplicates: the bolts that it shows, each under a failure behind it."""

from __future__ import annotations

from typing import Any

from squall import BasicBolt, FailedTuple, bolt, spout
from squall.engine.api.topology import ComponentSpec
from squall.engine.core.local import LocalRunner
from squall.scheduler.common import blob
from tests.docs.pages import Page
from tests.unit.wired import wired


def shown(name: str) -> Any:
    [text] = [block for block in Page("docs/guarantees.md").of("python") if f"class {name}(" in block]
    names: dict[str, Any] = {"BasicBolt": BasicBolt, "__name__": __name__}
    exec(text, names)
    return names[name]()


def arrived(middle: BasicBolt) -> tuple[list[Any], int]:
    """The records that got past a sink which fails the first attempt of record 2, and how many were acked."""
    failed, got = [], []

    @spout("id", "value")
    def records() -> list[tuple[int, str]]:
        return [(number, "x") for number in range(5)]

    @bolt
    def sink(tup: Any) -> None:
        if tup["id"] == 2 and not failed:
            failed.append(tup)
            raise FailedTuple("the first attempt")
        got.append(tup.values)

    steps = {"middle": (middle, 1, "fields records id"), "sink": (sink, 1, "shuffle middle")}

    def copy(spec: ComponentSpec) -> Any:
        # The sink is not copied: its variables are the test's.
        return spec.component if spec.id == "sink" else blob.copy_component(spec)

    with LocalRunner(wired(records=(records, 1), **steps).build(), copy=copy) as runner:
        report = runner.run()
    assert failed
    return sorted(got), report.acked


def test_leaving_out_in_the_middle_loses_a_record_in_silence() -> None:
    got, acked = arrived(shown("Once"))
    assert [number for number, _ in got] == [0, 1, 3, 4]
    assert acked == 5, "and yet all are acked, as the page says"


def test_emitting_again_loses_none_and_counts_each_once() -> None:
    got, acked = arrived(shown("CountOnce"))
    assert [number for number, _, _ in got] == [0, 1, 2, 3, 4]
    assert max(count for _, _, count in got) == 5
    assert acked == 5
