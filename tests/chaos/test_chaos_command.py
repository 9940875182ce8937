"""`squall chaos` as users type it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from squall.ipc.run_parent import sweep_stale
from squall.testing import wait_for
from tests.process.cli import squall, start
from tests.process.standing_tools import ENDLESS
from tests.schemas import mistakes

HERE = "tests/chaos/chaos_parts.py"


def test_two_seeds(tmp_path: Path) -> None:
    done = squall(
        "chaos", f"{HERE}:numbers", "--seed", "7", "--seeds", "2", "--for", "1s", "--key", f"{HERE}:half", "--json",
        TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert mistakes(document) == []
    assert document["good"]
    assert [row["seed"] for row in document["seeds"]] == [7, 8]
    assert all(row["verdict"]["ok"] == row["verdict"]["messages"] == 300 for row in document["seeds"])
    assert all(row["run"]["injected"] for row in document["seeds"])
    assert document["expected"]["finite"]
    assert all(row["run"]["secs"] > 0.8 for row in document["seeds"]), "it was paced"
    assert not any(row["verdict"]["not_shown"] for row in document["seeds"])
    assert document["expected"]["asked"] == {"end from halves/default": "values"}
    said = done.stderr.splitlines()
    assert said[-1] == f"to repeat it: {said[0]}"
    assert "--seed 7 --seeds 2 --for 1s --mix all --sink end" in said[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_daemons_die_and_come_back_and_nothing_is_lost(tmp_path: Path) -> None:
    done = squall(
        "chaos", f"{HERE}:numbers", "--seed", "3", "--for", "2s", "--mix", "kill-daemon", "--json",
        TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["seeds"]
    deaths = row["run"]["deaths"]
    assert "nimbus" in {death["worker"] for death in deaths}
    assert not any(":" in death["worker"] for death in deaths), "no worker dies with a daemon"
    odd = [death for death in deaths if death["claimed_by"] != "kill" or death["ready_after_secs"] is None]
    assert odd == [], row["run"]["injected"]
    assert not list(tmp_path.iterdir())


def test_a_seed_that_fails_is_told_and_can_be_done_again(tmp_path: Path) -> None:
    """A position that is wrong: any kill of the spout's worker loses messages."""
    done = squall("chaos", f"{HERE}:highest", "--seed", "503", "--for", "2s", "--mix", "kill", TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "seed 503: FAILED" in done.stdout
    assert "lost: numbers[0] message" in done.stdout
    assert f"to repeat it: squall chaos {HERE}:highest --seed 503 " in done.stdout


def test_nothing_runs_on_when_it_is_killed(tmp_path: Path) -> None:
    running = start("chaos", ENDLESS, "--seed", "1", "--for", "5m", TMPDIR=str(tmp_path))
    wait_for("the first run", lambda: any(tmp_path.glob("squall-chaos-*/reference-*/source-*")), timeout_secs=120)
    running.kill()
    # Its child holds the pipes of its output for as long as it lives.
    running.communicate(timeout=120)
    # The next command that makes a run directory removes one that no process owns any more.
    wait_for("the end of the cluster", sweep_stale, timeout_secs=120)


def test_ctrl_c_while_workers_start_ends_it(tmp_path: Path) -> None:
    running = start("chaos", f"{HERE}:opens", "--seed", "1", TMPDIR=str(tmp_path))
    wait_for("a worker that opens its tasks", (tmp_path / "opening").exists, timeout_secs=100)
    running.send_signal(signal.SIGINT)
    # If it went on to wait for the workers, it would give up after a minute and exit with 1.
    _, said = running.communicate(timeout=110)
    assert (running.returncode, said) == (130, "")
    assert list(tmp_path.glob("squall-chaos-*")) == []
