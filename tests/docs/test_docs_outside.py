"""Every command of docs/ui.md, docs/rest.md, docs/tracing.md and docs/metrics.md does what its page says."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from pathlib import Path

import pytest

from tests.docs.pages import Page, understood
from tests.process.cli import ROOT, start
from tests.process.standing_tools import Standing
from tests.servers.ui_tools import TOPOLOGY, address


def commands() -> set[str]:
    """Those in code, with what they are given: a mere name of one is no command to type."""
    text = "\n".join(Page(f"docs/{name}.md").text for name in ("ui", "rest", "tracing", "metrics"))
    spans = re.findall(r"`((?:squall|curl) [^`\n]+)`", text) + re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    return {span for span in spans if span.count(" ") > 1 or span == "squall ui"}


def arguments(command: str) -> list[str]:
    return shlex.split(command)[1:]


UNDERSTOOD = {
    "squall up --ui", "squall ui", "squall thrift --port 6627", "squall tap NAME COMPONENT",
    "squall trace wc --sample 0.001 --for 1",
}
"""What these do is in tests/servers/test_ui_pages.py, test_storm_clients.py and tests/process/test_trace.py."""


@pytest.mark.parametrize("command", sorted(UNDERSTOOD))
def test_a_command_of_the_pages_is_understood(command: str) -> None:
    understood(*arguments(command))


RUNS, LINKS, SENDS = "squall run FILE --ui", "squall ui --link", "squall ui --otlp http://127.0.0.1:4318"
ASKS = 'curl -H "Authorization: Bearer $(cat DIR/ui.token)" http://127.0.0.1:8090/...'


def test_all_commands_are_here() -> None:
    assert commands() == UNDERSTOOD | {RUNS, LINKS, SENDS, ASKS}


def test_a_run_has_a_page() -> None:
    words = [TOPOLOGY if word == "FILE" else word for word in arguments(RUNS)]
    done = start(*words, "--for", "1s", "--drain-secs", "5", "--set", "on_error=fail", "--set", "max_attempts=2")
    _, said = done.communicate(timeout=100)
    assert "web page: http://127.0.0.1:" in said


def test_a_page_lets_in_who_has_its_link_or_its_token(cluster: Standing) -> None:
    cluster.ok("up", "--slots", "1", "--detach")
    served = start(*arguments(SENDS), SQUALL_DIR=str(cluster.path))
    try:
        assert served.stdout is not None
        link = r"http://127.0.0.1:\d+/enter\?code="
        assert re.match(link, served.stdout.readline())
        assert re.match(link, cluster.ok(*arguments(LINKS)))
        # As curl would ask.
        _, header, url = arguments(ASKS.replace("$(cat DIR/ui.token)", cluster.run_dir.ui_token.read_text().strip()))
        asked = url.replace("http://127.0.0.1:8090/...", f"{address(cluster)}/api/squall/v1/cluster")
        request = urllib.request.Request(asked, headers=dict([header.split(": ")]))
        with urllib.request.urlopen(request, timeout=60) as told:
            assert json.load(told)["dir"] == str(cluster.path)
    finally:
        served.terminate()
        _, said = served.communicate(timeout=100)
    assert served.returncode == 0, said


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
