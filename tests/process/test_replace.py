"""A topology in the place of another, while another operator does something else."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.process.cli import command, environment
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def replacing(standing: Standing, *arguments: str) -> subprocess.Popen[str]:
    """The command, on its own."""
    options = ("--name", "held", "--replace", "-w", "300", "--env", "SECRET=of mine", "--dir", standing.path)
    full = command("submit", *arguments, *options)
    return subprocess.Popen(full, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def successor(standing: Standing) -> Any:
    [row] = standing.json("list")["topologies"]
    return row["replaced_by"]


def test_a_later_one_wins_and_a_kill_ends_all(standing: Standing) -> None:
    standing.ok("submit", f"{ENDLESS}:stuck", "--name", "held", "--fresh")
    wait_for("messages that wait", lambda: standing.described("held").pending == 200)
    assert standing.refused(2, "submit", ENDLESS, "--name", "held") == (
        "a topology named 'held' is there already: choose another name, --replace it, or kill it first"
    )
    with replacing(standing, ENDLESS) as first:
        earlier = wait_for("the first", lambda: successor(standing))
        with replacing(standing, f"{ENDLESS}:saving", "--fresh") as second:
            later = wait_for("the second", lambda: successor(standing) if successor(standing) != earlier else None)
            _, said = first.communicate(timeout=60)
            assert first.returncode == 1
            assert said == f"squall: topology {earlier} is not there: {later} was submitted in its place meanwhile\n"
            for shows in (["list"], ["status"], ["status", "held"]):
                assert f"held is being replaced by {later}, which begins when it has drained" in standing.ok(*shows)
            shown = standing.json("status", "held")
            assert (shown["status"], shown["replaced_by"]["id"]) == ("KILLED", later)
            refused = standing.refused(2, "deactivate", "held")
            assert refused == f"topology 'held' gives way to {later}: try again when that is there"
            done = standing.run("kill", "held", "-w", "0")
            assert (done.returncode, f"{later}, which was to take its place, is dropped\n" in done.stderr) == (0, True)
            _, said = second.communicate(timeout=60)
    assert second.returncode == 1
    assert said == f"squall: topology {later} is not there: held was killed meanwhile\n"
    assert standing.json("list")["topologies"] == []
    assert [*standing.run_dir.code.iterdir(), *standing.run_dir.environments.iterdir()] == []
