"""Which messages of a spout are settled: acked, and so in every state behind it.

::

    partition   0 ─────────────── floor ──────────────► newest
                all settled, but    │  open: acked or not, in any order
                for buried ones     ▼
                             lowest open message

Below the floor nothing needs to be remembered: a message from there that comes again, because its spout was killed and
reads from further back, has been absorbed. A message that became a dead letter stays an exception for good, as it may
be sent again.

Guarantees: a floor never falls, and never passes a message that was emitted and is not acked, if positions ascend;
one that does not is refused.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from squall.engine.errors import ComponentError
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.text import repr_of
from squall.engine.state.lineage import NUMBER_BITS, Slots, origin_of, position_of


class Floor(NamedTuple):
    """What is settled in a partition."""

    number: int = 0
    """All messages below are settled."""
    buried: frozenset[int] = frozenset()
    """But for these, which were given up."""
    first: int = 0
    """The first message that was emitted: of those below, nothing is known."""

    def settles(self, number: int) -> bool:
        """Return True if the message of this number is settled."""
        return self.first <= number < self.number and number not in self.buried


NO_FLOOR = Floor()


class StoredFloor(NamedTuple):
    """What is stored of a partition."""

    prefix: str
    """The text of what its message ids begin with."""
    local: int
    """Its number among those of the task."""
    floor: Floor
    broken: str = ""
    """Why nothing may be emitted in it any more: its positions did not ascend."""


Store = Callable[[Iterable[StoredFloor]], None]


class SpoutPartition:
    __slots__ = ("base", "begun", "broken", "buried", "first", "floor", "local", "newest", "numbers", "prefix")

    def __init__(self, stored: StoredFloor, slots: Slots) -> None:
        self.prefix, self.local, floor, self.broken = stored
        self.base = slots.partition(self.local) << NUMBER_BITS
        self.floor = self.begun = floor.number
        """Now, and when this life of the task began: it may read from further back."""
        self.first, self.buried = floor.first, set(floor.buried)
        self.newest = -1
        """The highest number that this life of the task has emitted."""
        self.numbers: dict[int, str | None] = {}
        """The messages from the floor on, in their order -> their stream; None if they are acked, or given up."""

    @property
    def stored(self) -> StoredFloor:
        floor = Floor(self.floor, frozenset(self.buried), self.first)
        return StoredFloor(self.prefix, self.local, floor, self.broken)


class Settling:
    """Follows the messages of one spout task from their emits to their acks."""

    store: Store
    """Called with what must be stored at once. Set before a message is emitted."""

    def __init__(self, who: str, slots: Slots, stored: Iterable[StoredFloor]) -> None:
        """`stored`: what earlier lives of the task have settled."""
        self._who, self._slots = who, slots
        self.partitions = {each.prefix: SpoutPartition(each, slots) for each in stored}
        self._by_prefix: dict[tuple[Any, ...], SpoutPartition] = {}
        self._open = 0
        self._others: dict[Any, str] = {}
        """The open messages whose ids are no positions -> their stream."""

    def _partition(self, prefix: tuple[Any, ...], first: int) -> SpoutPartition:
        text = repr(prefix)
        found = self.partitions.get(text)
        if found is None:
            stored = StoredFloor(text, len(self.partitions), Floor(first=first))
            found = self.partitions[text] = SpoutPartition(stored, self._slots)
            # Before a tuple of it leaves: later lives must know it by the same number.
            self.store([stored])
        if found.broken:
            raise ComponentError(found.broken)
        self._by_prefix[prefix] = found
        return found

    def emitted(self, message_id: Any, values: Any, stream: str) -> int:
        """Note an emit; return partition and number of the message, as one. ComponentError if its position is below
        another's, of which it is no replay, or if it is open on another stream."""
        number = position_of(message_id)
        if number is None:
            key = key_of(message_id)
            if self._others.setdefault(key, stream) != stream:
                raise self._on_two_streams(message_id, self._others[key], stream)
            return origin_of(message_id, (stream, *values))
        prefix = message_id[:-1] if message_id.__class__ is tuple else ()
        its = self._by_prefix.get(prefix) or self._partition(prefix, number)
        if number > its.newest:
            its.newest = number
            if number >= its.floor:
                its.numbers[number] = stream
                self._open += 1
        elif (known := its.numbers.get(number, stream)) != stream and known is not None:
            raise self._on_two_streams(message_id, known, stream)
        elif number >= its.begun and number not in its.numbers and number not in its.buried:
            raise self._out_of_order(its, message_id)
        if number < its.first:
            raise self._out_of_order(its, message_id)
        return its.base | number

    def _on_two_streams(self, message_id: Any, one: str, other: str) -> ComponentError:
        return ComponentError(
            f"{self._who} emitted message id {repr_of(message_id)} on streams {one!r} and {other!r}; before state that "
            "counts exactly once, allowed: an id of its own for each emit"
        )

    def _out_of_order(self, its: SpoutPartition, message_id: Any) -> ComponentError:
        # Stored, because a later life would take it for settled.
        its.broken = (
            f"{self._who} emitted message id {repr_of(message_id)} for the first time, or after its ack, and "
            f"{max(its.newest, its.first)} before; ids that end with a whole number are positions, which ascend before "
            "state that counts exactly once; allowed: ascending numbers, or ids that are text"
        )
        self.store([its.stored])
        return ComponentError(its.broken)

    def answered(self, message_id: Any, buried: bool = False) -> None:
        """Note that a message was acked, or given up."""
        number = position_of(message_id)
        if number is None:
            self._others.pop(key_of(message_id), None)
            return
        its = self._by_prefix.get(message_id[:-1] if message_id.__class__ is tuple else ())
        if its is not None and its.numbers.get(number) is not None:
            its.numbers[number] = None
            self._open -= 1
            if buried:
                its.buried.add(number)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "store"}

    @property
    def has_open(self) -> bool:
        """Return True if a message is not answered."""
        return self._open > 0 or bool(self._others)

    @property
    def is_behind(self) -> bool:
        """Return True if a partition is read again that was settled before this life of the task."""
        return any(-1 < its.newest < its.begun - 1 for its in self.partitions.values())

    def risen(self) -> Iterator[StoredFloor]:
        """The floors that have risen since the last call."""
        for its in self.partitions.values():
            numbers = its.numbers
            done = [number for number, _ in takewhile(lambda item: item[1] is None, numbers.items())]
            for number in done:
                del numbers[number]
            floor = next(iter(numbers), its.newest + 1)
            if floor > its.floor:
                its.floor = floor
                yield its.stored
