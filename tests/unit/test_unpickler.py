"""Files of a run directory are read after our modules have moved."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from squall import BasicBolt, CustomGrouping, ReplayingSpout, Stream, TopologyBuilder
from squall.engine.api.failure import EXCEPTION, Failure
from squall.engine.flow.routed import Routed
from squall.engine.tracking.attempts import Changes, Tries
from squall.scheduler.common import blob, unpickler
from squall.scheduler.records.attempt_journal import AttemptJournal
from squall.scheduler.records.dead_letters import DeadLetters

WHY = Failure(EXCEPTION, "split", error="ValueError: x")


def before_the_move(data: bytes) -> bytes:
    """As a Squall would have written it whose engine was called otherwise, by a name of the same length."""
    assert b"squall.engine" in data, "nothing of ours is in it"
    return data.replace(b"squall.engine", b"squall.former")


class Lines(ReplayingSpout):
    outputs = {"default": ("line",), "to": Stream("line", direct=True)}  # noqa: RUF012


class Split(BasicBolt):
    outputs = ("word",)


class First(CustomGrouping):
    pass


def test_a_topology() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split()).custom_grouping("lines", First()).direct_grouping("lines", stream="to")
    topology = blob.load(before_the_move(blob.dump(builder.build())), [])
    assert isinstance(topology["lines"].component, ReplayingSpout)
    assert topology["lines"].outputs["to"].direct


def test_a_journal_of_attempts(tmp_path: Path) -> None:
    complaints: list[str] = []
    path = tmp_path / "state" / "lines-0"
    journal = AttemptJournal(path, "t-1", complaints.append)
    journal.append(Changes([(1, "a")], [], {"a": Tries(1, last=WHY)}, ()), lambda: Changes([], [], {}, ()))
    journal.append(Changes([(2, "b")], [], {"a": Tries(2, last=WHY)}, ()), lambda: Changes([], [], {}, ()))
    journal.end()
    path.write_bytes(before_the_move(path.read_bytes()))
    assert AttemptJournal(path, "t-1", complaints.append).load().tries == {"a": Tries(2, last=WHY)}
    assert complaints == []


def test_a_dead_letter_of_another_stream(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    letters.add("lines", 0, "a", Routed.on("to", 7, ("x",)), WHY)
    letters.give_back()
    (request,) = (path for path in tmp_path.rglob("*") if path.parent.name == "lines-0")
    request.write_bytes(before_the_move(base64.b64decode(request.read_bytes())))
    ((_, letter),) = letters.take("lines", 0, (), pytest.fail)
    assert (letter.values, letter.values.stream, letter.values.direct) == (("x",), "to", 7)


def test_what_is_not_ours_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        unpickler.loads(b"cnowhere\nStream\n.")
    with pytest.raises(ModuleNotFoundError, match=r"squall\.former"):
        unpickler.loads(b"csquall.former\nNobody\n.")
