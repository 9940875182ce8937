"""ShellBolt and ShellSpout over real programs: what they say is done, and whatever dies, nothing is lost or left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
    spout,
)
from squall.connect import ShellBolt, ShellSpout
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ClusterError, UsageError
from squall.testing import complete_topology
from tests.needs import require
from tests.process import parts
from tests.process.conftest import SharedCluster
from tests.process.parts import notes
from tests.process.told import Told
from tests.process.waiting import wait_for

PROGRAM = Path(__file__).with_name("shell_program.py")


def command(directory: Path, role: str, number: int = -1) -> list[str]:
    return [sys.executable, str(PROGRAM), str(directory), role, str(number)]


def bolt(directory: Path, role: str, number: int = -1, **more: Any) -> ShellBolt:
    return ShellBolt(command(directory, role, number), ("n",), **more)


def chain(directory: Path, shell: ShellBolt, spout: Any, tasks: int = 1, **settings: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("source", spout)
    builder.set_bolt("shell", shell, tasks).shuffle_grouping("source").set_config(**settings)
    builder.set_bolt("end", parts.Seen(str(directory))).shuffle_grouping("shell")
    return builder.build()


class Emits(BasicBolt):
    """Each number, or what is to stand for it."""

    outputs = ("n",)

    def __init__(self, others: dict[int, Any]) -> None:
        self.others = others

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((self.others.get(tup["n"], tup["n"]),))


def seen(directory: Path) -> list[int]:
    return sorted(n for _, n in notes(directory, "seen"))


def no_child_left(directory: Path) -> bool:
    return wait_for("the end of all programs", lambda: not any(map(psutil.pid_exists, notes(directory, "pids"))))


@spout("n")
def two_thousand(start: int) -> Iterator[int]:
    yield from range(start, 2000)


@pytest.mark.parametrize(("role", "failed", "programs"), [
    ("passes", 0, 2), ("noisy", 0, 1), ("early", 0, 1), ("fails", 1, 1),
])
def test_programs_with_their_habits(
    shared_cluster: SharedCluster, tmp_path: Path, role: str, failed: int, programs: int
) -> None:
    numbers = parts.Numbers(str(tmp_path), 50)
    report = shared_cluster.run(chain(tmp_path, bolt(tmp_path, role, 20), numbers, tasks=programs))
    assert (report.acked, report.failed) == (50, failed)
    assert seen(tmp_path) == [-1] * (role == "early") + list(range(50))
    assert len(notes(tmp_path, "pids")) == programs
    assert no_child_left(tmp_path)


def test_a_bolt_in_javascript(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    require("node")
    shell = ShellBolt(["node", str(PROGRAM.with_suffix(".js"))], ("n",))
    assert shared_cluster.run(chain(tmp_path, shell, parts.Numbers(str(tmp_path), 300))).acked == 300
    assert seen(tmp_path) == list(range(300))


def test_a_program_may_keep_more_tuples_than_wait_for_it(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """It acks at ticks only, which therefore must get past the tuples behind those that it keeps."""
    topology = chain(
        tmp_path, bolt(tmp_path, "keeps"), parts.Numbers(str(tmp_path), 1000), tick_tuple_freq_secs=0.3
    )
    assert shared_cluster.run(topology, Config(max_spout_pending=350)).acked == 1000


def test_more_than_a_pipe_holds_and_what_is_not_json(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """In both directions: ids of tasks that are not read, and a long tuple; two others fail alone."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 3))
    builder.set_bolt("values", Emits({0: "é" * 500_000, 1: b"x", 2: float("nan")})).shuffle_grouping("source")
    builder.set_bolt("shell", bolt(tmp_path, "floods")).shuffle_grouping("values")
    report = shared_cluster.run(builder.build(), Config(max_attempts=2))
    assert (report.acked, report.components["shell"].emitted) == (1, 20_000)
    dead = {n: error for n, _, error, _ in notes(tmp_path, "dead")}
    assert dead.keys() == {1, 2}
    assert all("a value is not JSON: " in error for error in dead.values())
    assert Told(shared_cluster).has("sent {'command': 'no command'}, which is no command of a bolt; it is left out")


def test_what_a_program_says(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 3))
    outputs = {"named": ("n", "fields"), "direct": Stream("word", direct=True)}
    # Tasks have numbers in the order of declaration, ackers first or last: the program is told which is meant.
    builder.set_bolt("shell", TellsTask(command(tmp_path, "talks"), outputs)).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(str(tmp_path))).shuffle_grouping("shell", "named")
    builder.set_bolt("told", parts.Seen(str(tmp_path / "told")), 2).direct_grouping("shell", "direct")
    (tmp_path / "told").mkdir()
    report = shared_cluster.run(builder.build())
    assert report.acked == 3
    assert sorted(values[1:] for values in notes(tmp_path, "seen") if values[1] != "quiet") == [
        [n, ["n"]] for n in range(3)
    ]
    assert notes(tmp_path / "told", "seen") == [[1, "direct"]] * 3
    size: Mapping[str, Any] = report.metrics["shell"]["size"]  # type: ignore[assignment]
    assert (size["count"], size["mean"]) == (3, 2.5)
    told = Told(shared_cluster)
    assert told.has("ShellError: an error of its own")
    assert told.has("'name': 'wrong', 'params': 'many'}: must be real number, not str")
    assert told.has("WARNING shell: a line of its log")


class TellsTask(ShellBolt):
    """Tells its program the second task of `told`."""

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        self.command[-1] = str(context.component_tasks("told")[1])
        super().prepare(conf, context, collector)


@pytest.mark.parametrize(
    ("role", "secs", "said"),
    [
        ("killed", 600, "was ended by signal 9 (SIGKILL): my last words"),
        ("hangs", 3, "said nothing of use for 3 s; it was to answer a heartbeat"),
        ("twice", 600, ", which it does not have, or has acked or failed"),
    ],
)
def test_a_program_that_dies_hangs_or_errs_is_replaced(
    shared_cluster: SharedCluster, tmp_path: Path, role: str, secs: float, said: str
) -> None:
    shell = bolt(tmp_path, role, 150, subprocess_timeout_secs=secs)
    report = shared_cluster.run(chain(tmp_path, shell, parts.Numbers(str(tmp_path), 300)))
    assert report.acked == 300
    assert set(seen(tmp_path)) == set(range(300))
    assert len(notes(tmp_path, "pids")) == 2
    assert no_child_left(tmp_path)
    assert not report.restarts
    assert Told(shared_cluster).has(said)
    failed = notes(tmp_path, "failed")
    assert role == "twice" or 150 in [message_id for message_id, *_ in failed]
    for _, reason, component, _, error, _ in failed:
        assert (reason, component) == ("failed", "shell")
        assert said in error


def test_a_worker_that_is_killed_in_the_middle(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """Its programs die with it: this one hangs, so that it does not see the end of its input."""
    shell = bolt(tmp_path, "hangs", 150, subprocess_timeout_secs=600)
    job = shared_cluster.submit("killed", chain(tmp_path, shell, two_thousand, tasks=2), Config(workers=2))
    wait_for("one that hangs", (tmp_path / "met").exists)
    wait_for("some words", lambda: len(notes(tmp_path, "seen")) > 100)
    before = notes(tmp_path, "pids")
    for worker in job.stats().workers:
        shared_cluster.inject("kill", worker)
    wait_for("the end of its programs", lambda: not any(map(psutil.pid_exists, before)))
    report = job.wait_until_drained(timeout=90)
    job.kill(0.0)
    assert len(report.restarts) == 2
    assert len(notes(tmp_path, "pids")) == 4
    assert set(seen(tmp_path)) == set(range(2000))
    assert no_child_left(tmp_path)


def test_a_spout_in_another_language(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", ShellSpout(command(tmp_path, "spout", 100), ("n",)))
    builder.set_bolt("refuse", parts.Refuse(str(tmp_path), 0)).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(str(tmp_path))).shuffle_grouping("refuse")
    job = shared_cluster.submit("spout", builder.build(), Config(on_error="fail"))
    wait_for("all acks", lambda: len(notes(tmp_path, "acked")) == 100)
    job.deactivate()
    wait_for("deactivate", lambda: notes(tmp_path, "asked")[-1] == "deactivate")
    job.activate()
    wait_for("activate", lambda: notes(tmp_path, "asked").count("activate") == 2)
    job.kill(0.0)
    # The ids come back as they were: numbers, with 0, and texts.
    assert sorted(notes(tmp_path, "acked"), key=int) == [str(n) if n % 2 else n for n in range(100)]
    assert notes(tmp_path, "failed") == [0]
    assert seen(tmp_path) == list(range(100))
    assert Told(shared_cluster).has("emitted message 7 without a tuple; it is left out")
    assert notes(tmp_path, "asked")[:2] == ["activate", "next"]
    assert len(notes(tmp_path, "pids")) == 1
    assert no_child_left(tmp_path)


def test_a_spouts_program_that_is_killed_in_the_middle(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", ShellSpout(command(tmp_path, "spout", 800), ("n",)))
    builder.set_bolt("end", parts.Seen(str(tmp_path))).shuffle_grouping("source")
    job = shared_cluster.submit("spout", builder.build())
    wait_for("some acks", lambda: len(notes(tmp_path, "acked")) > 100)
    os.kill(notes(tmp_path, "pids")[0], signal.SIGKILL)
    wait_for("all acks", lambda: len({int(one) for one in notes(tmp_path, "acked")}) == 800)
    [restart] = job.stats().restarts
    job.kill(0.0)
    assert "was ended by signal 9 (SIGKILL)" in str(restart)
    assert set(seen(tmp_path)) == set(range(800))
    assert no_child_left(tmp_path)


def test_a_spouts_program_that_does_not_answer(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", ShellSpout(command(tmp_path, "mute"), ("n",), subprocess_timeout_secs=2))
    says = r"said nothing of use for 2 s; it was to answer '(activate|next)' with 'sync'"
    with pytest.raises(TaskCrashed, match=says):
        complete_topology(builder.build())
    assert no_child_left(tmp_path)


def test_what_cannot_be_started_is_one_line_and_a_stop(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    numbers = parts.Numbers(str(tmp_path), 3)
    with pytest.raises(ClusterError, match=r"shell\[\d\]: no-such-program cannot .*path.*: No such file or"):
        shared_cluster.run(chain(tmp_path, ShellBolt(["no-such-program"], ("n",)), numbers))
    with pytest.raises(TaskCrashed, match=rf"shell\[\d\]: .*{PROGRAM.name} .* ended with exit code 1: no database"):
        complete_topology(chain(tmp_path, bolt(tmp_path, "exits"), numbers))
    with pytest.raises(TaskCrashed, match=r"shell\[\d\] shall run true in /no/such, which is no directory") as raised:
        complete_topology(chain(tmp_path, ShellBolt(["true"], ("n",), directory="/no/such"), numbers))
    assert raised.value.traceback_text == ""
    with pytest.raises(UsageError, match=r"ShellBolt has command 'python3 x\.py'; allowed: a list of"):
        ShellBolt("python3 x.py")  # type: ignore[arg-type]
