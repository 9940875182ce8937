"""`squall spark plan`: the verdict on each component, edge and setting, and the exit code that follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import (
    AsyncSpout,
    BasicBolt,
    BasicCollector,
    Bolt,
    Config,
    CustomGrouping,
    FeedSpout,
    ReplayingSpout,
    Spout,
    Stream,
    TailSpout,
    Topology,
    TopologyBuilder,
    Tuple,
)
from squall.cli.commands import main
from squall.pipeline.on_spark.spark_plan import APPROX, EXACT, REFUSED, SparkPlan, plan_topology
from tests.schemas import mistakes


class Numbers(ReplayingSpout):
    outputs = {"default": ("n",), "to": Stream("n", direct=True)}  # noqa: RUF012

    def read(self) -> Iterator[tuple[Any, Any]]:
        yield 1, (1,)


class Ticker(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None: ...


class Waiting(Ticker):
    blocking = True


class Coming(AsyncSpout):
    outputs = ("n",)

    async def run(self) -> None: ...


class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)


class Slow(Pass):
    blocking = True


class Stores(Bolt):
    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.paths = [f"{context.state_dir}/{n}" for n in range(2)]

    def execute(self, tup: Tuple) -> None: ...


class First(CustomGrouping):
    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return []


def topology(build: Callable[[TopologyBuilder], object], spout: Spout | None = None) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("in", spout or Numbers())
    build(builder)
    return builder.build()


def verdicts(plan: SparkPlan) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in plan.findings}


def test_every_grouping_has_a_verdict() -> None:
    def subscribe(builder: TopologyBuilder) -> None:
        bolt = builder.set_bolt("b", Pass())
        bolt.shuffle_grouping("in").local_or_shuffle_grouping("in").none_grouping("in").fields_grouping("in", "n")
        bolt.partial_key_grouping("in", "n").all_grouping("in").global_grouping("in")
        bolt.direct_grouping("in", stream="to").custom_grouping("in", First())

    plan = plan_topology(topology(subscribe))
    edges = {f"in -> b [{name}]": EXACT for name in (
        "shuffle", "local_or_shuffle", "none", "fields(n)", "partial_key(n)", "all", "global",
    )}
    others = {"in.to -> b [direct]": EXACT, "in -> b [custom]": APPROX}
    assert verdicts(plan) == {"in": EXACT, "b": EXACT, **edges, **others}
    assert plan.verdict == APPROX
    assert all(bool(finding.why) == (finding.verdict != EXACT) for finding in plan.findings)


@pytest.mark.parametrize(
    ("spout", "verdict", "why"),
    [
        (Numbers(), EXACT, ""),
        (Ticker(), APPROX, "what it took from outside"),
        (Waiting(), REFUSED, "blocking"),
        (Coming(), REFUSED, "an AsyncSpout emits when it likes"),
        (TailSpout("lines.txt"), REFUSED, "never ends"),
        (FeedSpout([__file__]), EXACT, ""),
    ],
)
def test_spouts(spout: Spout, verdict: str, why: str) -> None:
    finding = plan_topology(topology(lambda builder: None, spout)).findings[0]
    assert finding.verdict == verdict
    assert why in finding.why
    assert bool(finding.to_do) == (verdict == REFUSED)


@pytest.mark.parametrize(
    ("bolt", "settings", "verdict"),
    [
        (Pass(), {}, EXACT),
        (Pass(), {"tick_tuple_freq_secs": 1}, APPROX),
        (Slow(), {}, APPROX),
        (Slow(), {"execute_timeout_secs": None}, EXACT),
        (Stores(), {}, APPROX),
    ],
)
def test_bolts(bolt: Bolt | BasicBolt, settings: dict[str, Any], verdict: str) -> None:
    made = topology(lambda builder: builder.set_bolt("b", bolt).shuffle_grouping("in"))
    plan = plan_topology(made, Config(**settings))
    assert verdicts(plan)["b"] == verdict


def test_settings_that_do_not_apply_are_told() -> None:
    plan = plan_topology(topology(lambda builder: None), Config(max_spout_pending=7, message_timeout_secs=9))
    assert verdicts(plan) == {"in": EXACT, "max_spout_pending": APPROX, "message_timeout_secs": APPROX}


def test_every_edge_of_a_cycle_is_refused_and_no_other() -> None:
    def build(builder: TopologyBuilder) -> None:
        builder.set_bolt("a", Pass()).shuffle_grouping("in").shuffle_grouping("c")
        builder.set_bolt("b", Pass()).shuffle_grouping("a")
        builder.set_bolt("c", Pass()).shuffle_grouping("b").shuffle_grouping("c")
        builder.set_bolt("d", Pass()).shuffle_grouping("c")

    refused = {finding.name for finding in plan_topology(topology(build)).of(REFUSED)}
    assert refused == {"c -> a [shuffle]", "a -> b [shuffle]", "b -> c [shuffle]", "c -> c [shuffle]"}


TOPOLOGY = """
from squall import BasicBolt, ReplayingSpout, TopologyBuilder

class In(ReplayingSpout):
    outputs = ("n",)
    def read(self):
        yield 1, (1,)

class Out(BasicBolt):
    outputs = ("n",)

def topology(args):
    builder = TopologyBuilder()
    builder.set_spout("in", In())
    declared = builder.set_bolt("out", Out()).shuffle_grouping("in")
    if args == ["loop"]:
        declared.shuffle_grouping("out")
    if args == ["tick"]:
        declared.set_config(tick_tuple_freq_secs=1)
    return builder.build()
"""


@pytest.mark.parametrize(
    ("argument", "code", "last"),
    [
        ("plain", 0, "all is EXACT: squall run --on spark"),
        ("tick", 5, "1 finding APPROX: squall run --on spark needs --accept-approx"),
        ("loop", 6, "1 finding REFUSED: Spark cannot run this topology"),
    ],
)
def test_the_command_ends_accordingly(
    argument: str, code: int, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "planned.py"
    file.write_text(TOPOLOGY)
    with pytest.raises(SystemExit) as ended:
        main(["spark", "plan", str(file), "--", argument])
    assert (ended.value.code, capsys.readouterr().out.splitlines()[-1]) == (code, last)
    with pytest.raises(SystemExit) as ended:
        main(["spark", "plan", str(file), "--json", "--", argument])
    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == code
    assert mistakes(document) == []
    assert document["verdict"] == {0: EXACT, 5: APPROX, 6: REFUSED}[code]
    assert {finding["name"] for finding in document["findings"]} >= {"in", "out", "in -> out [shuffle]"}
