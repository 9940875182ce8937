"""`squall chaos` passes over no planted fault, and finds none in the same topology without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.chaos_faults import BATCHES, ROWS
from tests.process.cli import squall

HERE = "tests/chaos/chaos_faults.py"
PLANTED = {
    (ROWS, "drops"): "unsteady",
    (ROWS, "drops the seen"): "lost",
    (ROWS, "alters"): "unsteady",
    (ROWS, "doubles"): "unsteady",
    (ROWS, "wrong stream"): "unsteady",
    (ROWS, "swallows"): "unsteady",
    (ROWS, "acks first"): "after it had acked its input",
    (ROWS, "loose"): "24 of its 600 tuples are not anchored",
    (ROWS, "new ids"): "new ids in each run",
    (ROWS, "forgets failures"): "cannot replay",
    (ROWS, "writes late"): "the result differs",
    (ROWS, "memory"): "the result differs",
    (BATCHES, "drops"): "without any fault",
    (BATCHES, "alters"): "unsteady",
    (BATCHES, "doubles"): "without any fault",
    (BATCHES, "anchors to row 0"): "which messages arrive differs between two runs",
    (BATCHES, "anchors to its neighbour"): "unsteady",
    (BATCHES, "writes late"): "the result differs",
    (BATCHES, "memory"): "the result differs",
}
"""What `squall chaos` says of each."""
ON_DISK = ("writes late", "memory")
QUICK = ((ROWS, "drops the seen"), (BATCHES, "anchors to row 0"), (BATCHES, "writes late"))


def chaos(by: str, fault: str, *options: str, place: str) -> tuple[int, str]:
    done = squall("chaos", HERE, "--seed", "1", "--for", "1.5s", "--mix", "kill", *options, "--", by, fault, place)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("by", "fault"), [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.nightly) for one in PLANTED]
)
def test_a_planted_fault_is_found(by: str, fault: str, tmp_path: Path) -> None:
    on_disk = fault in ON_DISK
    options = ("--result", f"{HERE}:numbers") if on_disk else ()
    code, said = chaos(by, fault, *options, place="{}" if on_disk else str(tmp_path))
    # A spout by which nothing can be proved is refused as wrong use.
    assert code == (2 if fault in ("new ids", "forgets failures") else 1), said
    assert PLANTED[by, fault] in said


@pytest.mark.nightly
@pytest.mark.parametrize("by", [ROWS, BATCHES])
def test_without_a_result_a_sinks_own_disk_is_said_to_be_unseen(by: str, tmp_path: Path) -> None:
    code, said = chaos(by, "writes late", place=str(tmp_path))
    assert code == 0, said
    assert "NOT SHOWN: effects of end outside of the topology" in said
    assert "--result FILE:FUNCTION" in said


@pytest.mark.parametrize("by", [ROWS, pytest.param(BATCHES, marks=pytest.mark.nightly)])
def test_a_whole_topology_passes_with_its_result(by: str) -> None:
    code, said = chaos(by, "none", "--result", f"{HERE}:numbers", place="{}")
    assert code == 0, said
    assert "shown" not in said.lower()


def test_a_result_that_an_earlier_run_left_is_refused(tmp_path: Path) -> None:
    code, said = chaos(ROWS, "none", "--result", f"{HERE}:numbers", place=str(tmp_path))
    assert code == 2
    assert "write {} for it: each run has one" in said


def test_where_nothing_is_compared_it_fails(tmp_path: Path) -> None:
    done = squall("chaos", f"{HERE}:nowhere", "--seed", "1", "--for", "1s", "--", ROWS, "none", tmp_path)
    assert done.returncode == 1
    assert "nothing can be compared: no sink receives anything" in done.stderr
