"""`squall inject`, `heal` and what `status` says of it, in a standing cluster; the page's commands; wrong use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from squall import Config, LocalCluster, TopologyBuilder
from squall.scheduler.faults.in_force import read_record
from squall.testing import FixedSpout
from tests.process.cli import ROOT
from tests.process.standing_tools import Standing, directory
from tests.process.standing_topologies import Nothing
from tests.process.waiting import wait_for

SECTION = (ROOT / "docs" / "faults.md").read_text().partition("\n## Live\n")[2]
LIVE = re.findall(r"^```\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)[0].splitlines()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standing]:
    with directory() as made:
        made.ok("up", "--nodes", "2", "--slots", "2", "--detach")
        made.ok("submit", "examples/word_count.py", "--name", "words", "--workers", "4", "--", "README.md")
        wait_for("acks", lambda: made.described("words").acked > 0)
        yield made
        made.ok("heal")


def in_force(cluster: Standing) -> list[str]:
    return [fault["kind"] for fault in cluster.json("status")["faults"]]


def begun(cluster: Standing) -> list[int]:
    return [event["id"] for event in read_record(cluster.run_dir) if event["event"] == "begin"]


def test_status_shows_what_is_in_force_and_heal_ends_it(cluster: Standing) -> None:
    said = cluster.ok("inject", "slow", "split", "ms=5")
    default = r"\(its default; --for sets another time\)"
    assert re.fullmatch(rf"slow: \d tasks? of split, for 10 s {default}; squall heal ends it\n", said)
    cluster.ok("heal")
    # The commands that follow may take longer than its default on a slow machine.
    cluster.ok("inject", "slow", "split", "ms=5", "--for", "60s")
    assert "broken on purpose: slow " in cluster.ok("status", "words")
    assert "broken on purpose: slow " in cluster.ok("status")
    [fault] = cluster.json("status", "words")["faults"]
    assert (fault["kind"], fault["targets"], fault["params"]) == ("slow", ["split"], {"ms": 5.0})
    assert 0 < fault["left_secs"] <= 60
    assert cluster.ok("heal", "count") == "no fault that was begun with 'count' is in force\n"
    assert cluster.ok("heal", "split") == "healed: 1 fault, slow\n"
    assert in_force(cluster) == []
    assert "broken" not in cluster.ok("status")


def test_every_command_of_the_page(cluster: Standing) -> None:
    assert "squall inject kill nimbus" in LIVE
    killed = cluster.nimbus().pid
    for line in LIVE:
        _, *arguments = shlex.split(line)
        wait_for(line, lambda arguments=arguments: cluster.run(*arguments).returncode == 0)
    wait_for("another Nimbus", lambda: cluster.nimbus().pid != killed and cluster.run("status").returncode == 0)
    assert in_force(cluster) == []


def test_the_python_of_the_page() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", FixedSpout(("n",), [[n] for n in range(10)]))
    builder.set_bolt("split", Nothing(0.0)).shuffle_grouping("lines")
    [snippet] = re.findall(r"^```python\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    exec(snippet, {"LocalCluster": LocalCluster, "Config": Config, "topology": builder.build()})


def test_wrong_use_is_one_line(cluster: Standing) -> None:
    before = begun(cluster)
    for arguments, says in (
        (["kill", "\x1b[2J"], "\\x1b[2J"), (["kill", "node-1:6700", "at", "3s"], "now and once; use a plan for"),
        (["partition", "node-1", "-"], "the shell took the `>` of an arrow; write 'node-1 -> node-2', in quotes"),
    ):
        assert says in cluster.refused(2, "inject", *arguments)
    assert begun(cluster) == before
