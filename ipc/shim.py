"""The link fault shim: breaks frames on purpose, in the shipped code. Off unless given rules; off costs one `if`.

Guarantees: it draws decisions from its own seeded generator, so a seed repeats them; it counts the faults that it made;
it never touches frames of a link that no rule names. What it holds back leaves when the rules are replaced.

Relies on: its owner giving it content before it is sealed (`garbled`), and sealed frames after that (`apply`).
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from squall.ipc.frame import DATA, KINDS

Frame = list[bytes]
DROP, DUPLICATE, DELAY, REORDER, CORRUPT, TRUNCATE = "drop", "duplicate", "delay", "reorder", "corrupt", "truncate"
GARBLE = "garble"
"""Make the content of a DATA frame unreadable before it is sealed, so that its checksum is right."""
ACTIONS = (DROP, DUPLICATE, DELAY, REORDER, CORRUPT, TRUNCATE, GARBLE)
_GARBLED = b"garbled on purpose"
SLOW = "slow"
"""Hold every frame back for a time, in order. Whoever uses the shim asks for those whose time has come."""


@dataclass(frozen=True)
class LinkRule:
    """One fault: `action` on each frame with `probability`, optionally only of one kind or to one worker."""

    action: str
    probability: float
    kind: str | None = None
    receiver: int | None = None
    delay_frames: int = 8
    """DELAY: hold the frame back until so many more frames were sent on the link."""
    slow_ns: int = 0
    """SLOW: for so long."""

    def names(self, receiver: int, kind: int) -> bool:
        """Whether it is about frames of this kind to this worker."""
        return self.receiver in (None, receiver) and self.kind in (None, KINDS[kind])


class LinkShim:
    """Applies rules to the frames that one worker sends. Thread: the worker's loop."""

    def __init__(self, rules: list[LinkRule], seed: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.rules = rules
        self._rng = random.Random(seed)
        self._now_ns = now_ns
        self._held: dict[int, list[tuple[int, Frame]]] = {}
        self._slow: dict[int, deque[tuple[int, Frame]]] = {}
        """Per receiver, frames in order and when each leaves."""
        self.counts: Counter[str] = Counter()

    def replace(self, rules: list[LinkRule], seed: int) -> list[tuple[int, Frame]]:
        """Other rules, and another seed; what was held back, (receiver, frame) in order, which is to leave now."""
        left = [(receiver, frame) for receiver, held in self._held.items() for _, frame in held]
        left += [(receiver, frame) for receiver, queue in self._slow.items() for _, frame in queue]
        self.rules = rules
        self._rng = random.Random(seed)
        self._held, self._slow = {}, {}
        return left

    def take_due(self) -> list[tuple[int, Frame]]:
        """The slow frames, (receiver, frame), whose time has come."""
        if not self._slow:
            return []
        now_ns = self._now_ns()
        out = []
        for receiver, queue in self._slow.items():
            while queue and queue[0][0] <= now_ns:
                out.append((receiver, queue.popleft()[1]))
        return out

    def garbled(self, receiver: int, kind: int, body: Sequence[Any]) -> Sequence[Any]:
        """The content to seal and send instead of this one."""
        for rule in self.rules:
            may = rule.action == GARBLE and kind == DATA and rule.names(receiver, kind)
            if may and self._rng.random() < rule.probability:
                self.counts[GARBLE] += 1
                body = [_GARBLED]
        return body

    def apply(self, receiver: int, kind: int, frame: Frame) -> list[Frame]:
        """The frames to send instead of this one, in order."""
        out = [frame]
        for rule in self.rules:
            if rule.action == GARBLE or not rule.names(receiver, kind):
                continue
            if out and self._rng.random() < rule.probability:
                before, out = out, self._act(rule, receiver, out)
                self.counts[rule.action] += out != before
        return out + self._due(receiver)

    def _act(self, rule: LinkRule, receiver: int, frames: list[Frame]) -> list[Frame]:
        if rule.action == DROP:
            return []
        if rule.action == DUPLICATE:
            return frames + frames
        if rule.action == SLOW:
            queue = self._slow.setdefault(receiver, deque())
            queue.extend((self._now_ns() + rule.slow_ns, frame) for frame in frames)
            return []
        if rule.action in (DELAY, REORDER):
            held = self._held.setdefault(receiver, [])
            held.extend((rule.delay_frames if rule.action == DELAY else 1, frame) for frame in frames)
            return []
        return [self._damage(rule.action, frame) for frame in frames]

    def _damage(self, action: str, frame: Frame) -> Frame:
        parts = [part for part, data in enumerate(frame) if data]
        if not parts:
            return frame
        part = self._rng.choice(parts)
        data = bytearray(frame[part])
        if action == TRUNCATE:
            del data[self._rng.randrange(len(data)) :]
        else:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return [*frame[:part], bytes(data), *frame[part + 1 :]]

    def _due(self, receiver: int) -> list[Frame]:
        held = self._held.get(receiver)
        if not held:
            return []
        waiting = [(left - 1, frame) for left, frame in held]
        self._held[receiver] = [(left, frame) for left, frame in waiting if left >= 0]
        return [frame for left, frame in waiting if left < 0]
