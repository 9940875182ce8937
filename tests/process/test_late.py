"""Late tuples that were dropped, on workers: the exit code, the warning, the status."""

from __future__ import annotations

from tests.process.cli import squall
from tests.process.standing_tools import directory
from tests.process.waiting import wait_for

DROPPING = "tests/unit/test_late.py:dropping"


def test_a_run_warns_of_what_was_late_and_can_fail_by_it() -> None:
    done = squall("run", DROPPING, "--quiet", "--set", "fail_on_late=true")
    assert done.returncode == 1
    assert "WARNING: 1 late tuple was dropped (1 in windows): " in done.stderr


def test_status_shows_what_was_late() -> None:
    with directory() as cluster:
        cluster.up()
        cluster.ok("submit", DROPPING, "--name", "dropping")
        wait_for("a late tuple", lambda: cluster.described("dropping")["late"] == 1)
        assert "1 late tuple was dropped (1 in windows): " in cluster.ok("status", "dropping")
        done = cluster.run("submit", DROPPING, "--name", "failing", "--until-drained", "--set", "fail_on_late=true")
        assert done.returncode == 1
        assert "WARNING: 1 late tuple was dropped" in done.stderr
