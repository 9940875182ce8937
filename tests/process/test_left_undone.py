"""Real workers: what a stop leaves undone is one number, and what was late and dropped is told."""

from __future__ import annotations

from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def test_every_stop_names_the_untracked_tuples_it_throws_away(cluster: Standing) -> None:
    cluster.up()
    # Ten times as many as the bolts execute before a command is through; nobody limits what is not tracked.
    cluster.ok("submit", f"{ENDLESS}:stuck", "--name", "u", "--set", "ackers=0")
    wait_for("a queue", lambda: cluster.described("u").untracked.unprocessed > 200)
    moved = cluster.json("rebalance", "u", "-w", "0")
    assert (moved["pending"], moved["waiting"]) == (0, 0)
    assert moved["untracked_unexecuted"] > 0
    down = cluster.run("down", "-w", "0")
    assert down.returncode == 0
    assert "u: nothing was pending; since it was submitted " in down.stderr
    cluster.up()
    killed = cluster.json("kill", "u", "-w", "0")
    assert killed["untracked_unexecuted"] >= moved["untracked_unexecuted"]


DROPPING = "tests/unit/test_late.py:dropping"


def test_what_was_late_is_told_and_can_fail_a_follower(standing: Standing) -> None:
    standing.ok("submit", DROPPING, "--name", "dropping")
    wait_for("a late tuple", lambda: standing.described("dropping").late == 1)
    assert "1 late tuple was dropped (1 in windows): " in standing.ok("status", "dropping")
    failing = "submit", DROPPING, "--name", "failing", "--until-drained", "--set", "fail_on_late=true"
    done = standing.run(*failing)
    assert done.returncode == 1
    assert "WARNING: 1 late tuple was dropped (1 in windows): " in done.stderr
