"""The link fault shim: what each action does to frames, that a seed repeats it, and that it is counted."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from squall.engine.errors import ProtocolError
from squall.ipc.frame import CREDIT, DATA, HEADER_BYTES, HELLO, Header, opening_of, seal, unseal
from squall.ipc.shim import ACTIONS, GARBLE, Frame, LinkRule, LinkShim

PEER = 1


OPENING = opening_of("t-1-00000000", 1)


def frames(count: int, n_parts: int = 1) -> list[Frame]:
    return [[f"frame {n} part {part}".encode() for part in range(n_parts)] for n in range(count)]


def through(shim: LinkShim, sent: list[Frame], receiver: int = PEER, kind: int = DATA) -> list[Frame]:
    return [out for frame in sent for out in shim.apply(receiver, kind, frame)]


def test_without_rules_nothing_changes() -> None:
    shim = LinkShim([], seed=1)
    assert through(shim, frames(10)) == frames(10)
    assert not shim.counts


def test_drop() -> None:
    shim = LinkShim([LinkRule("drop", 1.0)], seed=1)
    assert through(shim, frames(10)) == []
    assert shim.counts == {"drop": 10}


def test_duplicate() -> None:
    shim = LinkShim([LinkRule("duplicate", 1.0)], seed=1)
    first, second = frames(2)
    assert through(shim, [first, second]) == [first, first, second, second]
    assert shim.counts == {"duplicate": 2}


def test_reorder_swaps_a_frame_with_the_next() -> None:
    rules = [LinkRule("reorder", 1.0, kind="data")]
    shim = LinkShim(rules, seed=1)
    first, second, third = frames(3)
    assert shim.apply(PEER, DATA, first) == []
    assert shim.apply(PEER, HELLO, second) == [second, first]
    assert shim.apply(PEER, HELLO, third) == [third]


@pytest.mark.parametrize("delay_frames", [0, 1, 3, 8])
def test_delay_holds_a_frame_until_so_many_others_were_sent(delay_frames: int) -> None:
    shim = LinkShim([LinkRule("delay", 1.0, kind="data", delay_frames=delay_frames)], seed=1)
    late, *others = frames(12)
    out = shim.apply(PEER, DATA, late) + through(shim, others, kind=CREDIT)
    assert out == [*others[:delay_frames], late, *others[delay_frames:]]


@pytest.mark.parametrize("action", ["delay", "reorder"])
def test_delayed_frames_come_out_however_many_are_delayed(action: str, seed: int) -> None:
    shim = LinkShim([LinkRule(action, 0.7, kind="data")], seed)
    sent = frames(500)
    out = through(shim, sent)
    assert len(out) > len(sent) - 9
    # What is still held leaves with the next traffic of any kind.
    out += through(shim, [[b"credit"]] * 9, kind=CREDIT)
    assert sorted(frame for frame in out if frame != [b"credit"]) == sorted(sent)


def test_frames_held_for_one_peer_do_not_leave_to_another() -> None:
    shim = LinkShim([LinkRule("delay", 1.0, receiver=PEER, delay_frames=1)], seed=1)
    held, other = frames(2)
    assert shim.apply(PEER, DATA, held) == []
    for _ in range(5):
        assert shim.apply(2, DATA, other) == [other]
    assert shim.apply(PEER, DATA, other) == [held]


def differing_bits(left: Frame, right: Frame) -> int:
    both = zip(b"".join(left), b"".join(right), strict=True)
    return sum((a ^ b).bit_count() for a, b in both)


def test_corrupt_flips_one_bit() -> None:
    shim = LinkShim([LinkRule("corrupt", 1.0)], seed=1)
    for frame in frames(200, n_parts=3):
        [out] = shim.apply(PEER, DATA, frame)
        assert differing_bits(frame, out) == 1
    assert shim.counts == {"corrupt": 200}


def test_truncate_shortens_one_part() -> None:
    shim = LinkShim([LinkRule("truncate", 1.0)], seed=1)
    for frame in frames(200, n_parts=3):
        [out] = shim.apply(PEER, DATA, frame)
        shorter = [(a, b) for a, b in zip(frame, out, strict=True) if a != b]
        assert len(shorter) == 1
        assert shorter[0][0].startswith(shorter[0][1])


@pytest.mark.parametrize("action", ["corrupt", "truncate"])
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
    assert 0 < sum(other is not body for other in out) == shim.counts["garble"] < 100
    assert all(shim.garbled(*place, body) is body for _ in range(20) for place in ((PEER, CREDIT), (2, DATA)))
    assert shim.apply(PEER, DATA, body) == [body], "what is sealed is left as it is"


def test_empty_part_cannot_be_damaged() -> None:
    shim = LinkShim([LinkRule("corrupt", 1.0), LinkRule("truncate", 1.0)], seed=1)
    assert shim.apply(PEER, DATA, [b""]) == [[b""]]
    assert shim.counts.total() == 0


def test_frames_handed_in_are_left_as_they_are() -> None:
    shim = LinkShim([LinkRule(action, 1.0) for action in ("corrupt", "duplicate")], seed=1)
    [frame] = frames(1, n_parts=2)
    shim.apply(PEER, DATA, frame)
    assert [frame] == frames(1, n_parts=2)


@pytest.mark.parametrize("rule", [LinkRule("drop", 1.0, kind="credit"), LinkRule("drop", 1.0, receiver=2)])
def test_rule_for_others_leaves_a_frame_alone(rule: LinkRule) -> None:
    shim = LinkShim([rule], seed=1)
    assert through(shim, frames(10)) == frames(10)
    assert not shim.counts


def test_rule_may_name_kind_and_receiver() -> None:
    shim = LinkShim([LinkRule("drop", 1.0, kind="credit", receiver=PEER)], seed=1)
    [frame] = frames(1)
    assert shim.apply(PEER, CREDIT, frame) == []
    assert shim.apply(PEER, DATA, frame) == [frame]
    assert shim.apply(2, CREDIT, frame) == [frame]


def test_same_seed_same_faults(seed: int) -> None:
    rules = [LinkRule(action, 0.1) for action in ACTIONS]
    sent = frames(500, n_parts=2)
    one, other, third = LinkShim(rules, seed), LinkShim(rules, seed), LinkShim(rules, seed + 1)
    out = through(one, sent)
    assert through(other, sent) == out
    assert one.counts == other.counts
    assert set(one.counts) == {*ACTIONS} - {GARBLE}, "which is done before frames are whole"
    assert through(third, sent) != out


def test_faults_come_as_often_as_asked(seed: int) -> None:
    shim = LinkShim([LinkRule("drop", 0.25)], seed)
    sent = frames(4000)
    out = through(shim, sent)
    assert len(sent) - len(out) == shim.counts["drop"]
    assert 850 < shim.counts["drop"] < 1150


def test_every_fault_counted_is_a_fault_done(seed: int) -> None:
    """A frame that one rule dropped cannot be doubled by the next."""
    shim = LinkShim([LinkRule("drop", 0.5), LinkRule("duplicate", 0.5)], seed)
    sent = frames(1000)
    copies = Counter(frame[0] for frame in through(shim, sent))
    assert shim.counts["drop"] == sum(frame[0] not in copies for frame in sent)
    assert shim.counts["duplicate"] == sum(count == 2 for count in copies.values())


def test_dice_of_the_test_are_not_touched() -> None:
    random.seed(5)
    expected = random.Random(5).random()
    through(LinkShim([LinkRule("corrupt", 1.0)], seed=1), frames(10))
    assert random.random() == expected


def test_a_slow_link_holds_every_frame_for_its_time_in_order() -> None:
    now = 1_000
    shim = LinkShim([LinkRule("slow", 1.0, receiver=PEER, slow_ns=50)], 1, lambda: now)
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


@pytest.mark.parametrize("action", ["delay", "reorder", "slow"])
def test_what_is_held_back_leaves_when_the_rules_are_replaced(action: str) -> None:
    shim = LinkShim([LinkRule(action, 1.0, slow_ns=10**15)], seed=1)
    sent = frames(1)
    assert through(shim, sent) == []
    assert shim.replace([], seed=2) == [(PEER, sent[0])]
    assert through(shim, sent) == sent
    assert shim.replace([], seed=3) == []
