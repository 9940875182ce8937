"""`squall spark plan`: the verdict on each component, edge and setting, and the exit code that follows."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from squall import (
    AsyncSpout,
    BasicBolt,
    BasicCollector,
    Config,
    CustomGrouping,
    FeedSpout,
    Spout,
    Stream,
    TailSpout,
    Topology,
    TopologyBuilder,
    Tuple,
    bolt,
    spout,
)
from squall.cli.commands import main
from squall.pipeline.on_spark.spark_plan import APPROX, EXACT, REFUSED, SparkPlan, plan_topology
from tests.schemas import mistakes
from tests.unit.wired import wired

numbers = spout("n", streams={"to": Stream("n", direct=True)})(lambda: [1])


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


class Stores(Pass):
    def prepare(self, conf: Any, context: Any) -> None:
        self.paths = [f"{context.state_dir}/{n}" for n in range(2)]


def deeper() -> float:
    return time.time()


class Timed(Pass):
    """`__init__` runs before Spark does, and what the rest calls returns the same each time."""

    def __init__(self, inner: Callable[[], Any]) -> None:
        self.began, self.inner = time.time(), inner

    def prepare(self, conf: Any, context: Any) -> None:
        self.format = time.strftime("%H", time.gmtime(0)), random.Random(7).random()


class First(CustomGrouping):
    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return []


def topology(build: Callable[[TopologyBuilder], object], source: Spout = numbers) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("in", source)
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
    ("source", "verdict", "why"),
    [
        (numbers, EXACT, ""),
        (Ticker(), APPROX, "what it took from outside"),
        (Waiting(), REFUSED, "blocking"),
        (Coming(), REFUSED, "an AsyncSpout emits when it likes"),
        (TailSpout("lines.txt"), REFUSED, "never ends"),
        (FeedSpout([__file__]), EXACT, ""),
        (spout("n")(lambda: iter([random.random()])), APPROX, "it uses random.random: "),
    ],
)
def test_spouts(source: Spout, verdict: str, why: str) -> None:
    finding = plan_topology(topology(lambda builder: None, source)).findings[0]
    assert finding.verdict == verdict
    assert why in finding.why
    assert bool(finding.to_do) == (verdict == REFUSED)


@pytest.mark.parametrize(
    ("component", "settings", "verdict"),
    [
        (Pass(), {}, EXACT),
        (Pass(), {"tick_tuple_freq_secs": 1}, APPROX),
        (Slow(), {}, APPROX),
        (Slow(), {"execute_timeout_secs": None}, EXACT),
        (Stores(), {}, APPROX),
        (Timed(print), {}, EXACT),
        (Timed(lambda: [deeper() for _ in range(2)]), {}, APPROX),
        (Timed(lambda: next(monotonic() for _ in range(2))), {}, APPROX),
        (Timed(lambda: datetime.now(UTC)), {}, APPROX),
        (bolt(lambda tup: random.choice("ab")), {}, APPROX),
    ],
)
def test_bolts(component: BasicBolt, settings: dict[str, Any], verdict: str) -> None:
    made = topology(lambda builder: builder.set_bolt("b", component).shuffle_grouping("in"))
    plan = plan_topology(made, Config(**settings))
    assert verdicts(plan)["b"] == verdict


def test_settings_that_do_not_apply_are_told() -> None:
    plan = plan_topology(topology(lambda builder: None), Config(max_spout_pending=7, message_timeout_secs=9))
    assert verdicts(plan) == {"in": EXACT, "max_spout_pending": APPROX, "message_timeout_secs": APPROX}


def test_every_edge_of_a_cycle_is_refused_and_no_other() -> None:
    topology = wired(
        start=(numbers, 1), a=(Pass(), 1, "shuffle start", "shuffle c"), b=(Pass(), 1, "shuffle a"),
        c=(Pass(), 1, "shuffle b", "shuffle c"), d=(Pass(), 1, "shuffle c"),
    ).build()
    refused = {finding.name for finding in plan_topology(topology).of(REFUSED)}
    assert refused == {"c -> a [shuffle]", "a -> b [shuffle]", "b -> c [shuffle]", "c -> c [shuffle]"}


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "code", "last"),
    [
        ("names.py", 0, "all is EXACT: squall run --on spark"),
        ("groupings.py", 5, "1 finding APPROX: squall run --on spark needs --accept-approx"),
        ("access_log.py", 6, "1 finding REFUSED: Spark cannot run this topology"),
    ],
)
def test_the_command_ends_accordingly(
    example: str, code: int, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--", str(tmp_path / "log"), str(tmp_path / "out")] if code == 6 else []

    def told(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["spark", "plan", str(EXAMPLES / example), *options, *arguments])
        assert ended.value.code == code
        return capsys.readouterr().out

    assert told().splitlines()[-1] == last
    assert mistakes(json.loads(told("--json"))) == []
