"""Every command of docs/ui.md, docs/rest.md, docs/tracing.md and docs/metrics.md does what its page says."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.process.cli import ROOT, start
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.servers.ui_tools import address, cluster_with_page

TOPOLOGY = "tests/process/ui_topology.py:shown"


def commands() -> set[str]:
    """Those in code, with what they are given: a mere name of one is no command to type."""
    text = "\n".join(Page(f"docs/{name}.md").text for name in ("ui", "rest", "tracing", "metrics"))
    spans = re.findall(r"`((?:squall|curl) [^`\n]+)`", text) + re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    return {span for span in spans if span.count(" ") > 1 or span == "squall ui"}


def arguments(command: str, **given: str) -> list[str]:
    return [given.get(word, word) for word in shlex.split(command)[1:]]


def begins_with(line: str, cluster: Standing, *words: str) -> None:
    """Its first line matches, and it ends well when it is told to."""
    served = start(*words, SQUALL_DIR=str(cluster.path))
    assert served.stdout is not None
    first = served.stdout.readline()
    served.terminate()
    _, said = served.communicate(timeout=100)
    assert re.match(line, first), said
    assert served.returncode == 0, said


def prints_a_link(cluster: Standing, *words: str) -> None:
    begins_with(r"http://127.0.0.1:\d+/enter\?code=", cluster, *words)


def serves_thrift(cluster: Standing, command: str) -> None:
    # The port may be in use here.
    words = arguments(command, **{"6627": "0"})
    begins_with(r"Storm's Nimbus interface: 127.0.0.1:\d+$", cluster, *words)


def answers(cluster: Standing, command: str) -> None:
    """As curl would ask."""
    _, header, url = arguments(command.replace("$(cat DIR/ui.token)", cluster.run_dir.ui_token.read_text().strip()))
    asked = url.replace("http://127.0.0.1:8090/...", f"{address(cluster)}/api/squall/v1/cluster")
    with urllib.request.urlopen(urllib.request.Request(asked, headers=dict([header.split(": ")])), timeout=60) as told:
        assert json.load(told)["dir"] == str(cluster.path)


def runs_with_its_page(command: str) -> None:
    done = start(*arguments(command, FILE=TOPOLOGY), "--for", "1s", "--drain-secs", "5", "--set", "on_error=fail",
                 "--set", "max_attempts=2")
    _, said = done.communicate(timeout=100)
    assert "web page: http://127.0.0.1:" in said


def follows(cluster: Standing, command: str) -> None:
    # One in a thousand is too few for a spout that waits for its slow bolt.
    words = arguments(command, wc="words", **{"0.001": "0.2"})
    head = r"hop +tuples +after ms +transport ms +queue ms +execute ms"
    wait_for("a message of the sample", lambda: re.search(head, cluster.ok(*words)))


def test_every_command_of_the_pages_does_what_they_say(cluster: Standing) -> None:
    without = cluster
    with cluster_with_page() as cluster:
        without.ok("up", "--slots", "1", "--detach")
        wait_for("the page", lambda: address(cluster))
        shown: dict[str, Callable[[str], object]] = {
            "squall up --ui": lambda _: None,  # as `cluster_with_page` does
            "squall ui --link": lambda command: cluster.ok(*arguments(command)),
            'curl -H "Authorization: Bearer $(cat DIR/ui.token)" http://127.0.0.1:8090/...':
                lambda command: answers(cluster, command),
            "squall trace wc --sample 0.001 --for 1": lambda command: follows(cluster, command),
            "squall tap NAME COMPONENT": lambda command: cluster.ok(
                *arguments(command, NAME="words", COMPONENT="picky"), "--for", "1"),
            "squall run FILE --ui": runs_with_its_page,
            "squall ui": lambda command: prints_a_link(without, *arguments(command)),
            "squall thrift --port 6627": lambda command: serves_thrift(without, command),
            "squall ui --otlp http://127.0.0.1:4318": lambda command: prints_a_link(without, *arguments(command)),
        }
        assert commands() == set(shown)
        for command, run in shown.items():
            run(command)


def test_the_metrics_consumer_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [program] = Page("docs/metrics.md").of("python")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "metrics.py").write_text(program)
    (tmp_path / "shop" / "topology.py").write_text(
        "from shop.metrics import config\nfrom tests.process.ui_parts import words\n"
        "topology = words(**config.explicit())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    done = start("run", "shop.topology", "--app-dir", tmp_path, "--for", "1s", "--set", "metrics_interval_secs=1",
                 PYTHONPATH=f"{tmp_path}:{ROOT}")
    _, said = done.communicate(timeout=100)
    assert done.returncode == 0, said
    assert "metrics consumer" not in said
