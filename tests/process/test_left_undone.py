"""Real workers: what a run or a stop leaves undone is one number, read when they have ended, and never exit code 0."""

from __future__ import annotations

import json

from tests.process.cli import squall
from tests.process.standing_tools import ENDLESS, directory
from tests.process.waiting import wait_for


def test_a_run_that_is_cut_says_one_number_and_ends_with_4() -> None:
    done = squall("run", f"{ENDLESS}:stuck", "--quiet", "--json", "--for", "5s", "--drain-secs", "0")
    assert done.returncode == 4
    report = json.loads(done.stdout)
    assert report["pending"] > 0
    said = [line for line in done.stderr.splitlines() if line.startswith("stopped with")]
    assert len(said) == 1
    assert said[0].startswith(f"stopped with unfinished messages: {report['pending']} pending; a source that can be")


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
