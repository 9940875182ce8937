"""What a status board says of a topology at rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.engine.api.config import Config
from squall.engine.flow.parcel import Acks
from squall.ipc.ack_rings import AckRings
from squall.ipc.board import READY, SLOT_QUIET, Board
from squall.scheduler.common.messages import Assignment, SlotRef, TopologyRecord
from squall.scheduler.records.topology_view import TopologyView

RECORD = TopologyRecord("t-1", "t", "ACTIVE", Config().to_dict(), [], "0" * 64, [], 0.0)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[TopologyView]:
    """Two workers that are ready and quiet."""
    board = Board.create(str(tmp_path / "board"), 2, 1)
    for slot in range(2):
        board.set_slot(slot, 1, READY, 100 + slot)
        board.words[board.slot_at(slot) + SLOT_QUIET] = 1
    yield TopologyView(board, Assignment("t-1", 1, [SlotRef("n", 1), SlotRef("n", 2)], [[], []]), RECORD)
    board.close()


def assert_at_work(view: TopologyView, why: str) -> None:
    assert view.undrained() == why
    assert not view.is_idle()
    assert not view.is_drained()
    assert not view.is_at_rest()


def assert_at_rest(view: TopologyView) -> None:
    assert view.undrained() == ""
    assert view.is_idle()
    assert view.is_drained()
    assert view.is_at_rest()


def test_a_worker_that_does_not_say_that_it_is_quiet_is_at_work(view: TopologyView) -> None:
    assert_at_rest(view)
    view.board.words[view.board.slot_at(1) + SLOT_QUIET] = 0
    assert_at_work(view, "n:2 is at work")


def test_frames_are_under_way_until_their_receiver_has_processed_them(view: TopologyView) -> None:
    at = view.board.link_at(0, 1)
    view.board.words[at] = 7
    assert_at_work(view, "frames or acks are under way")
    view.board.words[at + 1] = 7
    assert_at_rest(view)


def test_acks_are_under_way_until_their_receiver_has_published_what_came_of_them(view: TopologyView) -> None:
    one, other = (AckRings(view.board.rings, 2, slot, 1) for slot in range(2))
    one.set_awake(True)
    assert other.tell(0, 1, 0, Acks({5: 5}))
    assert_at_work(view, "frames or acks are under way")
    one.take()
    assert_at_work(view, "frames or acks are under way")
    one.confirm()
    assert_at_rest(view)
    one.close()
    other.close()
