"""Any object may be a message id, and a message is recognised by it: here, and after a death of the spout's worker."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from squall.engine.api.replaying import ReplayingSpout
from squall.engine.flow.spout_collector import Routed
from squall.engine.foreign.identity import digest_of, key_of
from tests.unit.rig import Does, Rig, chain


@dataclass(frozen=True)
class Offset:
    topic: str
    at: int


class Plain:
    """Equal to nothing but itself."""

    def __init__(self, n: int) -> None:
        self.n = n


class Broken:
    """`at` names the method that raises."""

    def __init__(self, n: int, at: str) -> None:
        self.n, self.at = n, at

    def __hash__(self) -> int:
        return self._do("hash", 7)

    def __eq__(self, other: object) -> bool:
        return self._do("eq", 1) == 1 and isinstance(other, Broken) and other.n == self.n

    def __repr__(self) -> str:
        return str(self._do("repr", self.n))

    def __reduce__(self) -> Any:
        self._do("pickle", 0)
        return Broken, (self.n, self.at)

    def _do(self, what: str, value: int) -> int:
        if self.at == what:
            raise SystemExit(what)
        return value


class NeverTheSame:
    """Pickles differently each time, and is never equal."""

    made = 0

    def __init__(self, n: int) -> None:
        self.n = n

    def __getstate__(self) -> Any:
        NeverTheSame.made += 1
        return {"n": self.n, "made": NeverTheSame.made}


class Slotted:
    __slots__ = ("n", "unset")

    def __init__(self, n: int) -> None:
        self.n = n


IDS: dict[str, Callable[[int], Any]] = {
    "int": lambda n: n, "text": str, "list": lambda n: ["topic", n], "dict": lambda n: {"n": n},
    "nested": lambda n: ("t", [n]), "dataclass": lambda n: Offset("t", n),
    "plain": Plain, "slots": Slotted, "lock": lambda n: (n, threading.Lock()), "function": lambda n: lambda: n,
    "unstable": NeverTheSame, "nan": lambda n: (n, float("nan")),
    **{at: lambda n, at=at: Broken(n, at) for at in ("hash", "eq", "repr", "pickle")},
}


@pytest.mark.parametrize("make", IDS.values(), ids=IDS)
def test_a_message_is_recognised_when_it_is_read_again(make: Callable[[int], Any]) -> None:
    """The source makes a new object each time; the value is in the record, too."""
    assert key_of(make(1), ("v", 1)) == key_of(make(1), ("v", 1))
    assert key_of(make(1), ("v", 1)) != key_of(make(2), ("v", 2))
    same = make(1)
    assert key_of(same, ("v", 1)) == key_of(same, ("v", 1))
    assert key_of(same) == key_of(same)
    assert hash(key_of(same)) == hash(key_of(same))
    # And in the next life of its worker.
    assert key_of(same, ("v", 1)) in pickle.loads(pickle.dumps({key_of(same, ("v", 1)): 1}))


def test_ids_that_are_equal_are_one_message_whatever_its_values() -> None:
    assert key_of(Offset("t", 1)) == key_of(Offset("t", 1)) != key_of(Offset("t", 2))
    assert key_of(Offset("t", 1), ("v",)) == key_of(Offset("t", 1), ("w",))
    assert key_of(Plain(1)) != key_of(Plain(1))


@pytest.mark.parametrize("make", IDS.values(), ids=IDS)
def test_a_replaying_spout_ends_each_record_once(make: Callable[[int], Any]) -> None:
    ids, told = [make(n) for n in range(6)], list[Any]()

    class Source(ReplayingSpout):
        outputs = ("n",)

        def read(self) -> Any:
            yield from zip(ids, zip(range(6), strict=True), strict=True)

        def ack(self, message_id: Any) -> None:
            told.append(message_id)
            super().ack(message_id)

    def execute(bolt: Any, tup: Any) -> None:
        (bolt.collector.fail if tup["n"] == 3 else bolt.collector.ack)(tup)

    rig = Rig(chain(Source(), Does(execute)), max_attempts=4, on_error="fail")
    for _ in range(10):
        rig.advance(1.0)
    assert sorted(map(id, told)) == sorted(map(id, ids))
    assert [(letter[2] is ids[3], letter[4].attempt) for letter in rig.dead_letters] == [(True, 4)]
    assert rig.pending == 0
    assert rig.user("spout").exhausted


def test_a_digest_says_what_the_values_are_not_how_they_are_kept() -> None:
    text = "".join(["ab", "c"])
    assert digest_of((text, text)) == digest_of((text, "".join(["a", "bc"])))
    assert digest_of((Plain(1),)) != digest_of((Plain(2),))
    for make in IDS.values():
        assert digest_of((make(1),)) == digest_of((make(1),))
    assert digest_of(Routed.on("other", None, (1,))) == digest_of((1,))
    assert digest_of((1, "1")) != digest_of(("1", 1))
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert digest_of((cyclic,)) == digest_of((cyclic,))
