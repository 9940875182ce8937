"""The link fault shim: breaks frames on purpose, in the shipped code. Off unless given rules; off costs one `if`.

Guarantees: it draws decisions from its own seeded generator, so a seed repeats them; it never touches frames of a link
that no rule names. What it holds back leaves when the rules are replaced.

Relies on: its owner giving it content before it is sealed (`garbled`), and sealed frames after that (`apply`), and
asking for those whose time has come.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from squall.ipc.frame import DATA, KINDS

Frame = list[bytes]
DROP, DUPLICATE, DELAY, REORDER, CUT = "drop", "duplicate", "delay", "reorder", "cut"
"""REORDER delays a frame until one more was sent. Any other action, such as "flip", flips a bit."""
GARBLE = "garble"
"""Make the content of a DATA frame unreadable before it is sealed, so that its checksum is right."""
_GARBLED = b"garbled on purpose"
NEVER = 1 << 62
"""Later than any frame, and any time."""


@dataclass(frozen=True)
class LinkRule:
    """One fault: `action` on each frame with `probability`, optionally only of one kind or to one worker."""

    action: str
    probability: float
    kind: str | None = None
    receiver: int | None = None
    delay_frames: int = 8
    """DELAY: hold the frame back until so many more frames were sent on the link,"""
    delay_ns: int = NEVER
    """or for so long."""

    def names(self, receiver: int, kind: int) -> bool:
        """Whether it is about frames of this kind to this worker."""
        return self.receiver in (None, receiver) and self.kind in (None, KINDS[kind])


class LinkShim:
    """Applies rules to the frames that one worker sends. Thread: the worker's loop."""

    def __init__(self, rules: list[LinkRule], seed: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.rules = rules
        self._rng = random.Random(seed)
        self._now_ns = now_ns
        self._held: dict[int, list[tuple[int, int, Frame]]] = {}
        """Receiver -> frames in order, after how many more frames each leaves, and when at the latest."""

    def replace(self, rules: list[LinkRule], seed: int) -> list[tuple[int, Frame]]:
        """Other rules, and another seed; what was held back, (receiver, frame) in order, which is to leave now."""
        held = [(receiver, frame) for receiver, frames in self._held.items() for _, _, frame in frames]
        self.rules = rules
        self._rng = random.Random(seed)
        self._held = {}
        return held

    def take_due(self) -> list[tuple[int, Frame]]:
        """The frames, (receiver, frame), whose time has come."""
        return [(receiver, frame) for receiver in self._held for frame in self._due(receiver, sent=0)]

    def garbled(self, receiver: int, kind: int, body: Sequence[Any]) -> Sequence[Any]:
        """The content to seal and send instead of this one."""
        for rule in self.rules:
            may = rule.action == GARBLE and kind == DATA and rule.names(receiver, kind)
            if may and self._rng.random() < rule.probability:
                body = [_GARBLED]
        return body

    def apply(self, receiver: int, kind: int, frame: Frame) -> list[Frame]:
        """The frames to send instead of this one, in order."""
        frames = [frame]
        for rule in self.rules:
            if rule.action == GARBLE or not rule.names(receiver, kind):
                continue
            if frames and self._rng.random() < rule.probability:
                frames = self._act(rule, receiver, frames)
        return frames + self._due(receiver, sent=1)

    def _act(self, rule: LinkRule, receiver: int, frames: list[Frame]) -> list[Frame]:
        if rule.action == DROP:
            return []
        if rule.action == DUPLICATE:
            return frames + frames
        if rule.action in (DELAY, REORDER):
            after = rule.delay_frames if rule.action == DELAY else 1
            until_ns = self._now_ns() + rule.delay_ns
            self._held.setdefault(receiver, []).extend((after, until_ns, frame) for frame in frames)
            return []
        return [self._damage(rule.action, frame) for frame in frames]

    def _damage(self, action: str, frame: Frame) -> Frame:
        parts = [part for part, data in enumerate(frame) if data]
        if not parts:
            return frame
        part = self._rng.choice(parts)
        data = bytearray(frame[part])
        if action == CUT:
            del data[self._rng.randrange(len(data)) :]
        else:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return [*frame[:part], bytes(data), *frame[part + 1 :]]

    def _due(self, receiver: int, sent: int) -> list[Frame]:
        """Take the frames to this receiver that leave now that `sent` more were sent."""
        held = self._held.get(receiver)
        if not held:
            return []
        now_ns = self._now_ns()
        waiting = [(after - sent, until_ns, frame) for after, until_ns, frame in held]
        self._held[receiver] = [each for each in waiting if each[0] >= 0 and each[1] > now_ns]
        return [frame for after, until_ns, frame in waiting if after < 0 or until_ns <= now_ns]
