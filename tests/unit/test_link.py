"""The two ends of a link, without I/O: accept, repeat, gap, credit, window."""

from __future__ import annotations

import random
import tracemalloc
from collections import deque
from itertools import starmap

import pytest

from squall.engine.clock import NS_PER_MS
from squall.engine.errors import ProtocolError
from squall.ipc.link import MOST_RANGES, LinkReceiver, LinkSender, Missed
from tests.held import held

WINDOW_BYTES = 1000


def receiver(window_bytes: int = WINDOW_BYTES) -> LinkReceiver:
    return LinkReceiver(incarnation=1, window_bytes=window_bytes)


# The receiving end


def test_gap_is_credited_when_its_sender_knows_of_it_and_not_before() -> None:
    """Or the sender would have forgotten what the frames held when it hears that they are lost."""
    link = receiver()
    assert link.accept(4)
    assert link.untold
    assert link.tell_missed() == [(1, 3, False)]
    link.done(4)
    assert (link.untold, link.lost, link.processed) == (False, 3, 0)
    link.known(2)
    assert link.processed == 0
    link.known(3)
    assert (link.untold, link.processed, link.tell_missed()) == (False, 4, [])


def test_every_gap_is_told_until_its_sender_knows_of_it() -> None:
    link = receiver()
    link.accept(2)
    assert link.tell_missed() == [(1, 1, False)]
    link.accept(4)
    assert link.untold
    assert link.tell_missed() == [(1, 1, False), (3, 3, False)]
    link.known(1)
    assert not link.untold  # the other was told too
    assert link.tell_missed() == [(3, 3, False)]
    link.known(3)
    link.known(1)  # late
    assert link.tell_missed() == []
    with pytest.raises(ProtocolError, match="word on lost frames up to 5; 4 have come or been missed"):
        link.known(5)


def test_frame_that_cannot_be_read_is_told_and_credited_like_one_that_never_came() -> None:
    link = receiver()
    assert link.accept(1)
    link.spoil(1)
    assert link.accept(3)
    link.done(3)
    assert link.untold
    assert link.tell_missed() == [(1, 1, True), (2, 2, False)]
    assert (link.processed, link.lost, link.accept(1)) == (0, 1, False)
    link.park()
    assert link.processed == 0  # or the sender would have forgotten what the frames held
    link.known(2)
    assert (link.processed, held(link)) == (3, 0)
    assert link.accept(4)
    link.spoil(4)
    assert link.tell_missed() == [(4, 4, True)]


def test_more_gaps_than_fit_a_frame_are_told_one_after_the_other() -> None:
    link = receiver(window_bytes=1 << 20)
    for sequence in range(2, 2 * MOST_RANGES + 20, 2):
        link.accept(sequence)
        link.done(sequence)
    told = link.tell_missed()
    assert (len(told), link.untold) == (MOST_RANGES, False)
    link.known(told[-1][1])
    assert link.untold
    more = link.tell_missed()
    assert more[0][0] == told[-1][1] + 2
    link.known(more[-1][1])
    assert (link.untold, link.processed) == (False, link.received)


def test_patience_ends_sooner_at_first_and_never_for_who_gets_what_it_waits_for() -> None:
    sender = LinkSender(WINDOW_BYTES)
    asked = []
    for ms in range(0, 5000, 10):
        if ms == 100:
            sender.send(1)
        if sender.asks(ms * NS_PER_MS):
            asked.append(ms)
    assert asked == [150, 250, 450, 850, 1650, 2650, 3650, 4650]
    for ms in range(5000, 10_000, 40):
        sender.send(1)
        sender.credit(sender.sequence - 1)
        assert not sender.asks(ms * NS_PER_MS)
    sender.credit(sender.sequence)
    assert not any(sender.asks(ms * NS_PER_MS) for ms in range(10_000, 20_000, 100))
    link = receiver()
    link.accept(3)
    assert [ms for ms in range(0, 200, 10) if link.asks(ms * NS_PER_MS)] == [50, 150]
    link.known(2)
    assert not any(link.asks(ms * NS_PER_MS) for ms in range(200, 9000, 10))


def test_what_was_parked_is_credited_once() -> None:
    link = receiver()
    for sequence in (1, 2, 4):
        link.accept(sequence)
    link.done(2)
    link.park()
    assert link.processed == 2  # the sender does not know that frame 3 is lost
    link.known(3)
    assert (link.processed, link.credit(), link.owed) == (4, 4, 0)
    for sequence in (1, 4, 1):
        link.done(sequence)
    assert (link.processed, link.owed) == (4, 0)
    link.accept(5)
    link.done(5)
    assert link.credit() == 5
    assert held(link) == 0


@pytest.mark.parametrize("sequence", [1 << 63, (1 << 64) - 1, WINDOW_BYTES + 3])
@pytest.mark.parametrize("method", ["accept", "skip_to"])
def test_number_that_no_sender_can_have_reached_is_refused(method: str, sequence: int) -> None:
    link = receiver()
    link.accept(1)
    with pytest.raises(ProtocolError, match="frames are missing after frame 1; a sender has at most 1000 bytes"):
        getattr(link, method)(sequence)
    # It did no harm: the link goes on where it was.
    assert (link.received, link.lost, link.processed) == (1, 0, 0)
    assert link.accept(2)


def test_widest_gap_costs_neither_time_nor_memory() -> None:
    link = receiver(window_bytes=1 << 40)
    link.accept(1)  # stays at work, so that nothing of the gap can be credited yet
    tracemalloc.start()
    link.accept(1 << 40)
    link.skip_to(3 << 39)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000
    assert link.lost == (3 << 39) - 2
    link.known(3 << 39)
    link.done(1)
    assert link.processed == (1 << 40) - 1
    link.done(1 << 40)
    assert link.processed == 3 << 39


def test_random_losses_repeats_and_order_of_work(seed: int) -> None:
    dice = random.Random(seed)
    link = receiver()
    at_work: list[int] = []
    accepted: set[int] = set()
    finished: set[int] = set()
    for sequence in range(1, 2000):
        if dice.random() < 0.1:
            continue  # lost
        for copy in range(dice.choice((1, 1, 1, 2))):
            assert link.accept(sequence) is (copy == 0)
        at_work.append(sequence)
        accepted.add(sequence)
        while at_work and dice.random() < 0.6:
            done = at_work.pop(dice.randrange(len(at_work)))
            link.done(done)
            finished.add(done)
        link.known(link.received)
        oldest = min(at_work, default=link.received + 1)
        assert link.processed == oldest - 1
    for sequence in at_work:
        link.done(sequence)
    assert link.processed == link.received == max(accepted)
    assert link.lost == link.received - len(accepted)


# The sending end


def test_credit_for_frames_that_were_never_sent_is_refused() -> None:
    link = LinkSender(WINDOW_BYTES)
    released: list[bool] = []
    link.send(10, lambda: released.append(True))
    with pytest.raises(ProtocolError, match="credit for frame 2; only 1 were sent"):
        link.credit(2)
    assert not released
    assert link.under_way_bytes == 10


def test_what_lost_frames_held_comes_back_once() -> None:
    link = LinkSender(WINDOW_BYTES)
    for what in "abcdef":
        link.send(10, held=what)
    link.credit(1)
    assert link.lost([Missed(1, 2), Missed(4, 5, 1)]) == [("b", False), ("d", True), ("e", True)]
    assert link.lost([Missed(2, 2), Missed(4, 6)]) == [("f", False)]
    assert link.under_way_bytes == 50  # until the receiver gives credit
    link.credit(6)
    assert (link.lost([Missed(1, 6)]), link.under_way_bytes) == ([], 0)


def test_frame_that_did_not_leave_holds_nothing() -> None:
    link = LinkSender(WINDOW_BYTES)
    released: list[bool] = []
    link.send(10, lambda: released.append(True), "kept by the caller")
    link.not_sent()
    link.send(10, held="b")
    assert link.lost([Missed(1, 2)]) == [("b", False)]
    link.credit(2)
    assert (released, link.under_way_bytes) == ([True], 0)


@pytest.mark.parametrize("ranges", [[(0, 1)], [(2, 1)], [(1, 1), (1, 2)], [(2, 2), (1, 1)], [(1, 4)], [(4, 1 << 63)]])
def test_frames_that_cannot_be_lost_are_refused_and_nothing_is_done(ranges: list[tuple[int, int]]) -> None:
    link = LinkSender(WINDOW_BYTES)
    for what in "abc":
        link.send(10, held=what)
    with pytest.raises(ProtocolError, match="only 3 were sent"):
        link.lost(starmap(Missed, ranges))
    assert [held for held, _ in link.lost([Missed(1, 3)])] == ["a", "b", "c"]


# Both ends together


def test_sender_is_never_further_ahead_than_its_window(seed: int) -> None:
    """Frames and credit are lost, repeated and late; whatever happens, what is at the receiver is bounded."""
    dice = random.Random(seed)
    sender, link = LinkSender(WINDOW_BYTES), receiver()
    sizes: dict[int, int] = {}
    wire: deque[int] = deque()
    at_work: list[int] = []
    blocked = 0
    for _ in range(20_000):
        if sender.has_credit and dice.random() < 0.6:
            size = dice.randrange(1, 200)
            sequence = sender.send(size)
            sizes[sequence] = size
            if dice.random() > 0.05:
                wire.append(sequence)
        blocked += not sender.has_credit
        if wire and dice.random() < 0.5:
            sequence = wire.popleft()
            if link.accept(sequence):
                at_work.append(sequence)
        if at_work and dice.random() < 0.5:
            link.done(at_work.pop(dice.randrange(len(at_work))))
        if dice.random() < 0.2:
            link.credited = link.processed
            if dice.random() > 0.2:
                sender.credit(link.processed)
        # Once nothing else is on the way, asking brings back what lost frames and lost credit had taken.
        if not wire and not sender.has_credit:
            link.skip_to(sender.sequence)
        if not wire and dice.random() < 0.1:
            sender.lost(link.tell_missed())
            link.known(link.received)
            sender.credit(link.processed)
        assert sum(sizes[n] for n in at_work) <= WINDOW_BYTES + 200
    assert blocked
    assert link.lost > 100


def test_ring_of_full_links_drains_without_anyone_sending_data() -> None:
    """Credit is owed for what was processed, not for what could be sent on: a cycle of bolts cannot deadlock."""
    n_workers = 3
    senders = [LinkSender(WINDOW_BYTES) for _ in range(n_workers)]
    receivers = [receiver() for _ in range(n_workers)]
    inboxes: list[deque[int]] = [deque() for _ in range(n_workers)]
    outboxes = [0] * n_workers
    for i, sender in enumerate(senders):
        while sender.has_credit:
            sequence = sender.send(100)
            assert receivers[i].accept(sequence)
            inboxes[(i + 1) % n_workers].append(sequence)
    assert not any(sender.has_credit for sender in senders)
    hops = 0
    for _ in range(100):
        for i, inbox in enumerate(inboxes):
            incoming, outgoing = (i - 1) % n_workers, i
            while inbox:  # a bolt executes whatever came, and keeps its output until the next link has room
                receivers[incoming].done(inbox.popleft())
                outboxes[i] += 1
                hops += 1
            senders[incoming].credit(receivers[incoming].processed)
            while outboxes[i] and senders[outgoing].has_credit and hops < 500:
                outboxes[i] -= 1
                sequence = senders[outgoing].send(100)
                assert receivers[outgoing].accept(sequence)
                inboxes[(i + 1) % n_workers].append(sequence)
    assert hops >= 500
    assert all(sender.under_way_bytes == 0 for sender in senders)
