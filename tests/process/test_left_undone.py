"""Real workers: what a run or a stop leaves undone is one number, read when they have ended, and never exit code 0."""

from __future__ import annotations

from tests.process.standing_tools import ENDLESS, directory
from tests.process.waiting import wait_for


def test_every_stop_names_the_untracked_tuples_it_throws_away() -> None:
    with directory() as cluster:
        cluster.up()
        # Ten times as many as the bolts execute before a command is through; nobody limits what is not tracked.
        cluster.ok("submit", f"{ENDLESS}:stuck", "--name", "u", "--set", "ackers=0")
        wait_for("a queue", lambda: cluster.described("u")["untracked"]["unprocessed"] > 200)
        moved = cluster.json("rebalance", "u", "-w", "0")
        assert (moved["pending"], moved["waiting"]) == (0, 0)
        assert moved["untracked_unexecuted"] > 0
        down = cluster.run("down", "-w", "0")
        assert down.returncode == 0
        assert "u: nothing was pending; since it was submitted " in down.stderr
        cluster.up()
        killed = cluster.json("kill", "u", "-w", "0")
        assert killed["untracked_unexecuted"] >= moved["untracked_unexecuted"]
