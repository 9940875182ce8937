"""`squall chaos` passes over no planted fault, and finds none in the same topology without one.

What single messages show is checked without processes: `tests/unit/test_chaos_checker.py`, `test_chaos_taps.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.proof import PromiseBroken
from squall.testing.fixtures import FixtureChaos
from tests.chaos.chaos_faults import ANCHORS_TO_NEIGHBOUR, ANCHORS_TO_ROW_0, TAKES_REPEATS, numbers, topology
from tests.process.cli import squall

HERE = "tests/chaos/chaos_faults.py"
RESULT = ("--result", f"{HERE}:numbers")
PLANTED = {
    "writes late": "the result differs",
    "drops the seen": "lost",
    "drops all": "nothing can be compared: no sink receives anything",
    ANCHORS_TO_ROW_0: "nothing can be compared: end from middle/default: without faults, ",
    ANCHORS_TO_NEIGHBOUR: "keys that it had in the first run",
    "dies by itself": "by no fault: killed by SIGKILL",
    TAKES_REPEATS: "repeated",
    "forgets failures": "spout numbers cannot replay: it did not emit",
    "new ids": "new ids in each run",
    "memory": "the result differs",
    "fails one": "without any fault: lost: numbers[0] message 3: ",
}
"""What `squall chaos` says of each."""
KILLS = ("--seed", "1", "--mix", "kill")
OPTIONS = {
    ANCHORS_TO_NEIGHBOUR: (*KILLS, "--key", f"{HERE}:number"),
    TAKES_REPEATS: (
        "--seed", "46", "--mix", "duplicate", "--set", "batch_tuples=1", "--set", "message_timeout_secs=0.5",
    ),
}  # fmt: skip
"""Seed 46 draws many repeats."""


def chaos(fault: str, *options: str, place: str) -> tuple[int, str]:
    done = squall("chaos", HERE, "--for", "1.5s", *OPTIONS.get(fault, KILLS), *options, "--", fault, place)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(("fault", "told"), PLANTED.items())
def test_a_planted_fault_is_found(fault: str, told: str, tmp_path: Path) -> None:
    on_disk = "result" in told or fault == "fails one"
    code, said = chaos(fault, *(RESULT if on_disk else ()), place="{}" if on_disk else str(tmp_path))
    # A spout by which nothing can be proved is refused as wrong use.
    assert code == (2 if fault in ("forgets failures", "new ids") else 1), said
    assert told in said


def test_the_fixture_finds_what_a_result_shows(squall_chaos: FixtureChaos) -> None:
    def given(place: Path) -> list[str]:
        return ["writes late", str(place)]

    with pytest.raises(PromiseBroken, match="the result differs"):
        squall_chaos.run(
            lambda place: topology(given(place)), "kill", [1], for_secs=1.5, result=lambda place: numbers(given(place))
        )


@pytest.mark.nightly
def test_without_a_result_a_sinks_own_disk_is_said_to_be_unseen(tmp_path: Path) -> None:
    code, said = chaos("writes late", place=str(tmp_path))
    assert code == 0, said
    assert "NOT SHOWN: effects of end outside of the topology" in said
    assert "--result FILE:FUNCTION" in said


@pytest.mark.nightly
def test_a_whole_topology_passes_with_its_result() -> None:
    words = "tests/chaos/exact_chaos.py"
    done = squall(
        "chaos", "--app-dir", ".", f"{words}:words", "--result", f"{words}:rows", "--sink", "count", *KILLS,
        "--for", "1.5s", "--set", "workers=3", "--", "{}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "shown" not in (done.stdout + done.stderr).lower()


def test_a_result_that_an_earlier_run_left_is_refused(tmp_path: Path) -> None:
    code, said = chaos("none", *RESULT, place=str(tmp_path))
    assert code == 2
    assert "write {} for it: each run has one" in said
