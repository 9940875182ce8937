"""`squall profile` draws where a worker spends its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.ui import processes
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

BUSY = """
from squall import TopologyBuilder, bolt, spout

@spout("n")
def numbers():
    while True:
        yield 1

def spend_the_time(n):
    return sum(range(20_000))

builder = TopologyBuilder()
builder.set_spout("numbers", numbers)
builder.set_bolt("spend", bolt(lambda tup: spend_the_time(tup["n"]) and None)).shuffle_grouping("numbers")
topology = builder.build()
"""


def test_the_flame_graph_of_the_busiest_worker_names_the_user_s_function(standing: Standing, tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    picture = tmp_path / "busy.svg"
    standing.ok("submit", tmp_path / "busy.py", "--name", "busy", "--workers", "2")
    wait_for("the first acks", lambda: standing.described("busy").acked > 0)
    standing.ok("profile", "busy", "--for", "1s", "--out", picture)
    assert "spend_the_time" in picture.read_text()
    assert "node-1:67" in standing.refused(2, "profile", "busy", "--worker", "node-9:1")


def test_without_py_spy_it_is_told_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"pip install 'squall\[ui\]'"):
        processes.record(1, 1.0, tmp_path / "out.svg")


@pytest.mark.parametrize(("said", "told"), [
    ("Error: Permission Denied", "ptrace_scope=0"), ("Error: No stack counts found", "it did nothing in that time"),
    ("Error: it is odd", "Error: it is odd"),
])
def test_a_refusal_is_one_line_with_its_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    spy = tmp_path / "py-spy"
    spy.write_text(f"#!/bin/sh\necho '{said}' >&2\necho '   8: main' >&2\nexit 1\n")
    spy.chmod(0o700)
    with pytest.raises(ClusterError, match=told):
        processes.record(1, 1.0, tmp_path / "out.svg")
