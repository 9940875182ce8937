"""The link fault shim: what each action does to frames, that a seed repeats it, and that it is counted."""

from __future__ import annotations

import pytest

from squall.engine.errors import ProtocolError
from squall.ipc.frame import CREDIT, DATA, HEADER_BYTES, Header, opening_of, seal, unseal
from squall.ipc.shim import Frame, LinkRule, LinkShim

PEER = 1


OPENING = opening_of("t-1-00000000", 1)


def frames(count: int, n_parts: int = 1) -> list[Frame]:
    return [[f"frame {n} part {part}".encode() for part in range(n_parts)] for n in range(count)]


def through(shim: LinkShim, sent: list[Frame], receiver: int = PEER, kind: int = DATA) -> list[Frame]:
    return [out for frame in sent for out in shim.apply(receiver, kind, frame)]


def test_frames_held_for_one_peer_do_not_leave_to_another() -> None:
    shim = LinkShim([LinkRule("delay", 1.0, receiver=PEER, delay_frames=1)], seed=1)
    held, other = frames(2)
    assert shim.apply(PEER, DATA, held) == []
    for _ in range(5):
        assert shim.apply(2, DATA, other) == [other]
    assert shim.apply(PEER, DATA, other) == [held]


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


def test_rule_may_name_kind_and_receiver() -> None:
    shim = LinkShim([LinkRule("drop", 1.0, kind="credit", receiver=PEER)], seed=1)
    [frame] = frames(1)
    assert shim.apply(PEER, CREDIT, frame) == []
    assert shim.apply(PEER, DATA, frame) == [frame]
    assert shim.apply(2, CREDIT, frame) == [frame]


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
