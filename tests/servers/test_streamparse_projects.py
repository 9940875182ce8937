"""`squall run --streamparse`: a project of streamparse, whose components know nothing of Squall, is run as it is."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from squall.connect.multilang.streamparse_project import topology
from squall.engine.errors import UsageError
from tests.needs import require
from tests.process.cli import ROOT, squall, start
from tests.process.parts import notes
from tests.process.waiting import wait_for

PROJECT = Path(__file__).with_name("streamparse_project")
BINARIES = ROOT / "build" / "streamparse" / "bin"
PATH = f"{BINARIES}:{os.environ['PATH']}"
TOTALS = {3: 200, 1: 10, 2: 90, 6: 100, 4: 100}
"""Words by their length: the, cow; the number; jümped; over."""


@pytest.fixture(autouse=True)
def installed() -> None:
    require("streamparse")


def totals(directory: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for length, count in notes(directory, "counted"):
        found[length] += count
    return found


def test_a_project_is_run_as_it_is(tmp_path: Path) -> None:
    running = start(
        "run", "--streamparse", PROJECT, "word_lengths", "--json", PATH=PATH, WORDS_DIRECTORY=str(tmp_path)
    )
    try:
        wait_for("all words", lambda: totals(tmp_path).total() >= sum(TOTALS.values()) or running.poll() is not None)
    finally:
        running.terminate()
        answer, said = running.communicate(timeout=100)
    assert running.returncode == 0, said
    report = json.loads(answer)
    assert totals(tmp_path) == TOTALS
    assert (report["topology"], report["acked"], report["failed"]) == ("word_lengths", 100, 0)
    assert report["components"]["words"]["tasks"] == 2
    assert "left out, as only Storm has it: topology.max.task.parallelism" in said
    assert "a stray print of the cow 0 jümped over" in said
    assert "a batch of long" in said


JAVA = """
from streamparse import Grouping, JavaSpout, JavaBolt, Topology

class Java(Topology):
    spout = JavaSpout.spec(name="words", full_class_name="x.Y", args_list=[], outputs=["word"])
"""


def test_what_is_no_project_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = squall("run", "--streamparse", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"squall: {tmp_path} is no streamparse project: it has no topology in {tmp_path}/topologies\n"
    monkeypatch.setenv("PATH", PATH)
    with pytest.raises(UsageError, match="has no topology 'lengths'; allowed: word_lengths"):
        topology([str(PROJECT), "lengths"])
    (tmp_path / "specs").mkdir()
    (tmp_path / "config.json").write_text('{"topology_specs": "specs/"}')
    file = tmp_path / "specs" / "wrong.py"
    for text, said in (
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1", f"{file} has no subclass of streamparse.Topology"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError) as refused:
            topology([str(tmp_path)])
        assert str(refused.value) == f"{file} cannot be read by {BINARIES / 'python'}: {said}"
    file.write_text(JAVA)
    with pytest.raises(UsageError, match="component 'words' is written in Java, which Squall does not run"):
        topology([str(tmp_path)])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no streamparse_run for "):
        topology([str(tmp_path)])
