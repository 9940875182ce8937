"""A link: its two ends without I/O, and the shim that breaks it on purpose."""

from __future__ import annotations

import random
import tracemalloc
from collections import deque

import pytest

from squall import ProtocolError
from squall.ipc.frame import CREDIT, DATA, HEADER_BYTES, Header, opening_of, seal, unseal
from squall.ipc.link import LinkReceiver, LinkSender
from squall.ipc.shim import Frame, LinkRule, LinkShim

WINDOW_BYTES = 1000


def receiver(window_bytes: int = WINDOW_BYTES) -> LinkReceiver:
    return LinkReceiver(incarnation=1, window_bytes=window_bytes)


# The receiving end


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


# The sending end


def test_credit_for_frames_that_were_never_sent_is_refused() -> None:
    link = LinkSender(WINDOW_BYTES)
    released: list[bool] = []
    link.send(10, lambda: released.append(True))
    with pytest.raises(ProtocolError, match="credit for frame 2; only 1 were sent"):
        link.credit(2)
    assert not released
    assert link.under_way_bytes == 10


# Both ends together


def test_sender_is_never_further_ahead_than_its_window(seed: int) -> None:
    """Frames and credit are lost, repeated and late, work ends in any order; whatever happens, what is at the receiver
    is bounded, and it says what it has processed."""
    dice = random.Random(seed)
    sender, link = LinkSender(WINDOW_BYTES), receiver()
    sizes: dict[int, int] = {}
    wire: deque[int] = deque()
    at_work: list[int] = []
    accepted: set[int] = set()
    blocked = 0
    for _ in range(20_000):
        if sender.has_credit and dice.random() < 0.6:
            size = dice.randrange(1, 200)
            sequence = sender.send(size)
            sizes[sequence] = size
            if dice.random() > 0.05:
                wire.extend([sequence] * dice.choice((1, 1, 1, 2)))
        blocked += not sender.has_credit
        if wire and dice.random() < 0.5:
            sequence = wire.popleft()
            assert link.accept(sequence) is (sequence not in accepted)
            if sequence not in accepted:
                at_work.append(sequence)
                accepted.add(sequence)
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
            assert link.processed == min(at_work, default=link.received + 1) - 1
            sender.credit(link.processed)
        assert sum(sizes[n] for n in at_work) <= WINDOW_BYTES + 200
    assert blocked
    assert link.lost == link.received - len(accepted) > 100


PEER = 1


OPENING = opening_of("t-1-00000000", 1)


def frames(count: int) -> list[Frame]:
    return [[f"frame {n}".encode()] for n in range(count)]


def through(shim: LinkShim, sent: list[Frame]) -> list[Frame]:
    return [out for frame in sent for out in shim.apply(PEER, DATA, frame)]


@pytest.mark.parametrize("action", ["drop", "delay"])
def test_a_rule_may_name_kind_and_receiver(action: str) -> None:
    shim = LinkShim([LinkRule(action, 1.0, kind="credit", receiver=PEER, delay_frames=1)], seed=1)
    first, second = frames(2)
    assert shim.apply(PEER, CREDIT, first) == []
    assert shim.apply(2, CREDIT, second) == [second], "what is held for one peer does not leave to another"
    assert shim.apply(PEER, DATA, second) == [second, *([first] if action == "delay" else [])]


@pytest.mark.parametrize("action", ["flip", "cut"])
def test_damaged_frames_are_refused_by_the_checksum(action: str, seed: int) -> None:
    shim = LinkShim([LinkRule(action, 1.0)], seed)
    body = b"some payload"
    whole = seal(OPENING, Header(DATA, 0, PEER, 1, 1, 1), [body]) + body
    for _ in range(300):
        [[out]] = shim.apply(PEER, DATA, [whole])
        with pytest.raises(ProtocolError):
            unseal(OPENING, out[:HEADER_BYTES], [out[HEADER_BYTES:]])


def test_garbled_content_is_sealed_like_any_other() -> None:
    shim = LinkShim([LinkRule("garble", 0.5, receiver=PEER)], seed=1)
    body = [b"some payload", b"and a buffer"]
    out = [shim.garbled(PEER, DATA, body) for _ in range(100)]
    assert 0 < sum(other is not body for other in out) < 100
    assert all(shim.garbled(*place, body) is body for _ in range(20) for place in ((PEER, CREDIT), (2, DATA)))
    assert shim.apply(PEER, DATA, body) == [body], "what is sealed is left as it is"


def test_a_slow_link_holds_every_frame_for_its_time_in_order() -> None:
    now = 1_000
    shim = LinkShim([LinkRule("delay", 1.0, None, PEER, 1000, 50)], 1, lambda: now)
    sent = frames(3)
    assert through(shim, sent[:2]) == []
    assert shim.apply(2, DATA, sent[2]) == [sent[2]], "another link"
    assert shim.take_due() == []
    now += 40
    assert through(shim, sent[2:]) == []
    now += 10
    assert shim.take_due() == [(PEER, sent[0]), (PEER, sent[1])]
    now += 40
    assert shim.take_due() == [(PEER, sent[2])]
    assert shim.take_due() == []


@pytest.mark.parametrize("action", ["delay", "reorder"])
def test_what_is_held_back_leaves_when_the_rules_are_replaced(action: str) -> None:
    shim = LinkShim([LinkRule(action, 1.0)], seed=1)
    sent = frames(1)
    assert through(shim, sent) == []
    assert shim.replace([], seed=2) == [(PEER, sent[0])]
    assert through(shim, sent) == sent
    assert shim.replace([], seed=3) == []
