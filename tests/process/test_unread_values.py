"""A value that its class lets nobody send, or read, is its own message's failure: one dead letter, all else acked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall import Config
from tests.process import unread_parts
from tests.process.cli import squall
from tests.process.conftest import SharedCluster
from tests.process.unread_parts import COUNT, VICTIM

# The classes are found by name in every worker: what is written in a topology's own file is not.
FILE = "from tests.process.unread_parts import unreadable, unsendable\n"
WORKERS = ("--set", "workers=2", "--set", "ackers=1", "--set", "message_timeout_secs=3600")


@pytest.mark.parametrize(("what", "who", "deaths"), [("unreadable", "zink", 0), ("unsendable", "source", 5)])
def test_with_default_settings(tmp_path: Path, what: str, who: str, deaths: int) -> None:
    run_dir = tmp_path / "run"
    file = tmp_path / "bad.py"
    file.write_text(FILE)
    ran = squall("run", f"{file}:{what}", "--quiet", "--json", "--dir", run_dir, *WORKERS)
    assert ran.returncode == 3, ran.stderr
    report = json.loads(ran.stdout)
    assert report["dead_letters"] == 1
    if deaths:
        # What the spout's own worker had acked before it ended, it reads again.
        assert report["acked"] >= COUNT - 1
    else:
        assert (report["acked"], report["failed"], report["timed_out"]) == (COUNT - 1, 4, 0)
    columns = ("acked", "failed", "dead_letters", "waiting", "pending", "abandoned")
    assert report["emitted"] == sum(report[column] for column in columns)
    assert len(report["restarts"]) == deaths
    listed = squall("dead-letters", "bad", "--dir", run_dir, "--json")
    [letter] = json.loads(listed.stdout)["letters"]
    assert (letter["message_id"], letter["reason"], letter["component"]) == (str(VICTIM), "exception", who)
    assert "SystemExit: not this one" in letter["error"]
    assert letter["attempt"] == 5
    if not deaths:
        assert "reading field data of stream default of source[" in letter["error"]


def test_without_message_ids_it_is_dropped_and_counted(shared_cluster: SharedCluster) -> None:
    topology = unread_parts.topology(unread_parts.Unreadable, unread_parts.Untracked)
    report = shared_cluster.run(topology, Config(workers=2, ackers=1, on_error="fail"))
    assert report.untracked == (COUNT, COUNT - 1, 1, 0, 0)
    assert (report.untracked_emitted, report.emitted, report.restarts) == (COUNT, 0, [])
