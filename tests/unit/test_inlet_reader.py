"""One topology for an inlet: a second one is refused, and takes over only what its reader has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall import UsageError
from squall.pipeline import inlet_reader
from squall.pipeline.inlet import Inlet
from squall.pipeline.inlet_reader import InletReader, ReaderName


@pytest.fixture
def inlet(tmp_path: Path) -> Path:
    return Inlet(tmp_path / "in let").path


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet_reader, "WAIT_SECS", 0.1)


def name(tmp_path: Path, topology: str = "first", component: str = "lines") -> ReaderName:
    state = tmp_path / topology / "state"
    state.mkdir(parents=True, exist_ok=True)
    return ReaderName(topology, component, str(state))


def test_the_tasks_of_a_spout_read_it_together_and_another_topology_is_refused(inlet: Path, tmp_path: Path) -> None:
    tasks = [InletReader(inlet, name(tmp_path)) for _ in range(2)]
    tasks[0].close()
    said = (
        f"inlet {inlet} is read by 'lines' of topology 'first' already, whose state is in {tmp_path}/first/state; an "
        "inlet has one reader: end that topology, or have the query feed another inlet"
    )
    for other in (name(tmp_path, "second"), name(tmp_path, component="others")):
        with pytest.raises(UsageError) as refused:
            InletReader(inlet, other)
        assert str(refused.value) == said
    # Whoever was refused has left nothing behind.
    InletReader(inlet, name(tmp_path)).close()
    tasks[1].close()
    tasks[1].close()
    InletReader(inlet, name(tmp_path, "second")).close()


def die(reader: InletReader) -> None:
    """As a kill does it: the system drops the lock, and nobody tidies up."""
    reader.drop()


def test_after_a_kill_another_one_takes_over_and_the_first_is_refused(inlet: Path, tmp_path: Path) -> None:
    die(InletReader(inlet, name(tmp_path)))
    second = InletReader(inlet, name(tmp_path, "second"))
    with pytest.raises(UsageError, match="is read by 'lines' of topology 'second' already"):
        InletReader(inlet, name(tmp_path))
    second.close()


def test_a_worker_that_is_replaced_does_not_lose_its_inlet(
    inlet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its death and its next life nobody holds the lock."""
    die(InletReader(inlet, name(tmp_path)))
    lives: list[InletReader] = []
    # It comes back while the other one looks whether it does.
    monkeypatch.setattr(inlet_reader, "sleep", lambda secs: lives.append(InletReader(inlet, name(tmp_path))))
    with pytest.raises(UsageError, match="is read by 'lines' of topology 'first' already"):
        InletReader(inlet, name(tmp_path, "second"))
    assert lives


def test_a_reader_whose_run_directory_is_gone_does_not_come_back(
    inlet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = name(tmp_path)
    die(InletReader(inlet, first))
    os.rmdir(first.state)
    monkeypatch.setattr(inlet_reader, "WAIT_SECS", 1e9)
    InletReader(inlet, name(tmp_path, "second")).close()


def test_a_damaged_name_is_nobody_s(inlet: Path, tmp_path: Path) -> None:
    (inlet / "_reader").write_text("{")
    InletReader(inlet, name(tmp_path)).close()
