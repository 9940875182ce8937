"""A tuple that kills every worker it meets ends as a dead letter; everything else is acked, after few deaths."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from squall import Config, RunReport
from squall.engine.api.failure import ANOTHER_TUPLE
from squall.scheduler.records.dead_letters import DeadLetter, DeadLetters
from tests.process import parts
from tests.process.cli import squall
from tests.process.conftest import SharedCluster
from tests.process.parts import note, notes
from tests.process.standing_tools import in_process
from tests.process.waiting import wait_for
from tests.unit.wired import wired

COUNT = 400
VICTIM = 333
REASONS = {"exception": "exception", "exit": "worker died"}
FEWEST_DEATHS = {"exception": 5, "exit": 7}
"""An exception is known to be the message's doing. Else it is struck twice, then tried with others, and alone."""
MOST_DEATHS = 15
ERRORS = {"exception": f"ValueError: cannot digest {VICTIM}", "exit": ""}


def poisoned(directory: Path, victims: tuple[int, ...], how: str, bolts: int = 1, count: int = COUNT) -> Any:
    return wired(
        numbers=(parts.Numbers(str(directory), count), 1),
        bad=(parts.Poisoned(str(directory), victims, how), bolts, "shuffle numbers"),
        end=(parts.Seen(str(directory)), bolts, "shuffle bad"),
    ).build()


def run(cluster: SharedCluster, name: str, topology: Any, workers: int) -> tuple[RunReport, list[DeadLetter]]:
    config = Config(message_timeout_secs=3600, max_spout_pending=100, workers=workers)
    report = cluster.submit(name, topology, config).wait_until_drained(timeout=90)
    return report, ledger(cluster, name).read()


def ledger(cluster: SharedCluster, name: str) -> DeadLetters:
    return DeadLetters(cluster.run_dir.topology_state(name))


@pytest.mark.parametrize(("how", "workers"), [("exception", 2), ("exit", 1)])
def test_only_the_poison_is_dead_lettered(
    shared_cluster: SharedCluster, tmp_path: Path, how: str, workers: int
) -> None:
    """In the spout's own worker, or in both."""
    report, (letter,) = run(shared_cluster, how, poisoned(tmp_path, (VICTIM,), how, workers), workers)
    assert set(notes(tmp_path, "acked")) == set(range(COUNT)) - {VICTIM}
    assert (report.dead_letters, report.pending, report.timed_out) == (1, 0, 0)
    ((*dead, attempt),) = notes(tmp_path, "dead")
    assert dead == [VICTIM, REASONS[how], ERRORS[how]]
    # That it raised may be known, and it be on its way again, before its worker is gone: no fault of its.
    blameless = [row for row in notes(tmp_path, "failed") if row[0] == VICTIM and row[4] == ANOTHER_TUPLE]
    assert FEWEST_DEATHS[how] + len(blameless) <= attempt <= MOST_DEATHS + len(blameless)
    assert (letter.spout, letter.task_index, letter.message_id, letter.values) == ("numbers", 0, "333", "(333,)")
    assert (letter.reason, letter.error, letter.attempt) == (REASONS[how], ERRORS[how], attempt)
    assert letter.worker.startswith("node-1:670")
    deaths = len(notes(tmp_path, "poisonings"))
    assert FEWEST_DEATHS[how] <= deaths <= MOST_DEATHS
    assert len(report.restarts) == deaths
    if how == "exception":
        assert (deaths, attempt) == (5, 5 + len(blameless))
        # Every one of the deaths was this message's doing, and nobody else's.
        assert dict(report.failures["bad"].counts) == {"exception": 5}
        assert {record.message_id for record in report.failures["bad"].last} == {"333"}
        innocent = [row for row in notes(tmp_path, "failed") if row[0] != VICTIM]
        assert {(row[1], row[4]) for row in innocent} <= {
            ("worker died", "the worker ended by an exception in another tuple")
        }


@pytest.mark.nightly
def test_several_poisons_at_once(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """More deaths than a slot is allowed within a minute, but each is a step towards the ledger."""
    victims = (100, 101, 150, 151, 200, 260, 300, 398, 399)
    report, letters = run(shared_cluster, "several", poisoned(tmp_path, victims, "exit", 1), 1)
    assert set(notes(tmp_path, "acked")) == set(range(COUNT)) - set(victims)
    # The source reads from the start again after each death and is told again what is in the ledger.
    assert {row[0] for row in notes(tmp_path, "dead")} == set(victims)
    assert sorted(int(letter.message_id) for letter in letters) == sorted(victims)
    assert report.dead_letters == len(victims)
    assert len(report.restarts) <= MOST_DEATHS * len(victims)


def test_a_dead_letter_is_replayed_in_a_running_topology_once(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """It is taken by its own spout task, survives the worker that took it, and is acked in the end."""
    config = Config(workers=1, message_timeout_secs=3600, worker_timeout_secs=None)
    job = shared_cluster.submit("again", poisoned(tmp_path, (VICTIM,), "exit"), config)
    job.wait_until_drained(timeout=90)
    held = tmp_path / f"held-{len(notes(tmp_path, 'poisonings'))}"
    held.touch()
    replay = "dead-letters", "again", "--dir", shared_cluster.run_dir.path, "--replay"
    assert [letter["message_id"] for letter in json.loads(in_process(*replay, "--json").stdout)["letters"]] == ["333"]
    again = in_process(*replay)
    assert (again.returncode, again.stdout[:13]) == (0, "0 given back ")
    wait_for("it to be emitted again", lambda: notes(tmp_path, "waits"))
    # Its worker dies of it once more.
    note(str(tmp_path), "cured", True)
    held.unlink()
    requests = shared_cluster.run_dir.topology_state("again") / ".given-back" / "numbers-0"
    wait_for("the request to be settled", lambda: not list(requests.iterdir()))
    report = job.wait_until_drained(timeout=90)
    assert [VICTIM] in [row[1:] for row in notes(tmp_path, "seen")]
    assert len(notes(tmp_path, "poisonings")) == 1 + int(held.name.partition("-")[2])
    assert report.dead_letters == 1
    assert ledger(shared_cluster, "again").read() == []


FILE = """
import sys
from squall import TopologyBuilder
from tests.process import parts

def topology(args):
    builder = TopologyBuilder()
    builder.set_spout("numbers", parts.Numbers(args[0], 50))
    builder.set_bolt("bad", parts.Poisoned(args[0], (33,), "exception")).shuffle_grouping("numbers")
    return builder.build()
"""


def test_squall_run_ends_with_code_3_and_keeps_the_letters(tmp_path: Path) -> None:
    file = tmp_path / "kept.py"
    file.write_text(FILE)
    ran = squall("run", f"{file}:topology", "--quiet", "--", tmp_path)
    assert ran.returncode == 3, ran.stderr
    assert "1 dead letter," in ran.stdout
    assert "failures of bad: 5 exception" in ran.stdout
    listed = in_process("dead-letters", "kept")
    assert listed.returncode == 0
    assert "ValueError: cannot digest 33 (attempt 5)" in listed.stdout
    (kept,) = re.findall(r"squall dead-letters kept --dir (\S+)", ran.stderr)
    assert kept in listed.stdout
    # With the bug mended, the letter goes through when it is given back.
    note(str(tmp_path), "cured", True)
    assert in_process("dead-letters", "kept", "--replay").returncode == 0
    ran = squall("run", f"{file}:topology", "--quiet", "--json", "--dir", kept, "--", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["acked"] >= 51
    assert "0 dead letters" in in_process("dead-letters", "kept", "--dir", kept).stdout
