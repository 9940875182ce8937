"""RedisSource, RedisSink: a Redis stream as a spout, by a consumer group; a stream, hash or sorted set as a sink.

Guarantees
    * An entry is confirmed when it is acked or a dead letter. Each task is a consumer, which has the same name in its
      next life, and begins with the entries that were delivered to it and not confirmed.
    * Entries of a consumer that has not been seen for `claim_secs` are claimed by another. State that counts each
      record once relies on its worker being dead then, as `worker_timeout_secs` is shorter.
    * Rows are acked when Redis has answered; how safe they are then is a setting of Redis (`appendfsync`).
    * Passwords are read in the worker; what is wrong for good (a password, a key of another type) ends the worker with
      one line, and is not tried again and again.

Thread: that of the source or sink.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from squall.connect.outside import Outside, check_installed, check_url
from squall.connect.sink import Sink
from squall.connect.source import Source, Unreadable
from squall.engine.api.replaying import Record
from squall.engine.errors import UsageError
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext

WAIT_MS = 100
"""Longest wait of Redis for an entry; acks wait as long."""
ANSWER_SECS = 10.0
LEAST_CLAIM_SECS = 3.0
SEEN_SECS = 1.0
"""Time after which a consumer shows itself: before version 7.2, Redis does not note one that found nothing to read."""
_AFTER_ALL = f"{2**64 - 1}-0"
"""An id after which nothing was delivered. Redis takes the greatest one, which ends in {2**64 - 1}, for ">"."""


class RedisSource(Source):
    """Reads a stream: `RedisSource("redis://:${PASSWORD}@host/0", "orders", "billing", fields=("id", "price"))`. Groups
    have each entry once; a group shares them out among its consumers, which are all tasks that name it."""

    every_task = True
    delivers_again = True
    pause_secs = 0
    record_identity = "name"

    def __init__(
        self, url: str, stream: str, group: str, *, fields: Sequence[str] = ("value",), begin: str = "0",
        claim_secs: float = 60.0, decode: Callable[[bytes], Any] = bytes.decode,
    ) -> None:
        """`fields`: those of the entries that become values. `begin` is where a new group begins: "0" with what there
        is, "$" with what comes. `decode` makes a value of a field's bytes, by default a text; if it raises, the entry
        becomes a dead letter."""
        _check(self, url)
        for name, given in (("stream", stream), ("group", group)):
            if not isinstance(given, str) or not given:
                raise UsageError(f"RedisSource has {name} {repr_of(given)}; allowed: a name")
        if isinstance(fields, str) or not fields or not all(isinstance(field, str) for field in fields):
            raise UsageError(f"RedisSource has fields {repr_of(fields)}; allowed: names, such as (\"value\",)")
        if not isinstance(begin, str) or not claim_secs >= LEAST_CLAIM_SECS:
            raise UsageError(
                f"RedisSource has begin {repr_of(begin)} and claim_secs {repr_of(claim_secs)}; allowed: \"0\", \"$\" "
                f"or an entry's id, and {LEAST_CLAIM_SECS:g} or more"
            )
        self.outputs = tuple(fields)
        self._url, self._stream, self._group, self._begin = url, stream, group, begin
        self._claim_ms, self._decode = math.ceil(claim_secs * 1000), decode
        self._names = [field.encode() for field in fields]

    def connect(self, context: TopologyContext) -> None:
        import redis

        self._consumer = f"{context.topology_name}-{context.component_id}-{context.task_index}"
        self._client = self._other_side = _connected(self, self._url, "stream", self._stream)
        self._held = set[bytes]()  # by this connection: it may happen that they are claimed, and claimed back
        try:
            self._client.xgroup_create(self._stream, self._group, self._begin, mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # it is there
                raise

    def read_from(self, position: Any) -> Iterator[list[Record]]:
        last, claim_at, seen_at = "0", 0.0, 0.0  # first what was delivered to an earlier life
        while True:
            if time.monotonic() >= seen_at:
                self.keep_alive()
                seen_at = time.monotonic() + SEEN_SECS
            entries = self._read(last)
            if last != ">":
                last = entries[-1][0] if entries else ">"
            elif time.monotonic() >= claim_at:
                if claimed := self._claimed():
                    entries += claimed
                else:
                    claim_at = time.monotonic() + self._claim_ms / 2000
            self._held.update(map(itemgetter(0), entries))
            yield [(name.decode(), self._values(fields)) for name, fields in entries]

    def _read(self, last: str, count: int = 0) -> list[Any]:
        count = count or self.fitting
        found = self._client.xreadgroup(self._group, self._consumer, {self._stream: last}, count=count, block=WAIT_MS)
        return list(found[0][1]) if found else []

    def _values(self, fields: Mapping[bytes, bytes] | None) -> tuple[Any, ...] | Unreadable:
        raw = [(fields or {}).get(name) for name in self._names]
        try:
            if not fields:
                why = "it was deleted from the stream before it was done"
            elif None in raw:
                why = f"it has no field {self._names[raw.index(None)].decode()!r}"
            else:
                return tuple(map(self._decode, raw))  # type: ignore[arg-type]
        except Exception as error:
            why = text_of_error(error)
        return Unreadable(tuple(raw), f"cannot read the entry: {why}")

    def _claimed(self) -> list[Any]:
        """Take over entries of consumers that are gone. Living ones ask for entries all the time."""
        client, at, found = self._client, (self._stream, self._group), list[Any]()
        for consumer in client.xinfo_consumers(*at):
            name = consumer["name"]
            if consumer["pending"] and consumer["idle"] > self._claim_ms and name != self._consumer.encode():
                pending = client.xpending_range(*at, "-", "+", self.fitting, consumername=name)
                ids = [entry["message_id"] for entry in pending]
                found += client.xclaim(*at, self._consumer, self._claim_ms, ids)
        return [entry for entry in found if entry[0] not in self._held]

    def confirm(self, positions: Sequence[Any]) -> None:
        self._client.xack(self._stream, self._group, *positions)
        self._held.difference_update(map(str.encode, positions))

    def keep_alive(self) -> None:
        self._read(_AFTER_ALL, count=1)  # nothing: but it was seen


class RedisSink(Sink):
    """Writes rows to one of three things::

        RedisSink(url, stream="out")                              an entry with all fields of the row
        RedisSink(url, hash="counts", key="word", value="count")
        RedisSink(url, sorted_set="top", key="word", value="count")    the key is the member, the value its score
    """

    def __init__(
        self, url: str, *, stream: str = "", maxlen: int = 0, hash: str = "", sorted_set: str = "", key: str = "key",
        value: str = "value", rises: bool = False,
    ) -> None:
        """`maxlen`: entries that Redis keeps in the stream, about; 0 keeps all. `key` and `value` name fields. `rises`:
        the score of a member of the sorted set is only replaced by a greater one."""
        _check(self, url)
        given = {"stream": stream, "hash": hash, "zset": sorted_set}
        named = {kind: name for kind, name in given.items() if name}
        if len(named) != 1 or not all(isinstance(name, str) for name in (*given.values(), key, value)):
            raise UsageError(
                f"RedisSink has stream {repr_of(stream)}, hash {repr_of(hash)} and sorted_set {repr_of(sorted_set)}; "
                "allowed: the name of one, and names of fields for key and value"
            )
        if not isinstance(maxlen, int) or maxlen < 0:
            raise UsageError(f"RedisSink has maxlen {repr_of(maxlen)}; allowed: a number of entries, or 0 for all")
        [(self._kind, self._name)] = named.items()
        self._url, self._key, self._value, self._rises = url, key, value, bool(rises)
        self._options = ("MAXLEN", "~", maxlen) if maxlen else ()
        if not stream:
            self.needed_fields = (key, value)

    def connect(self, context: TopologyContext) -> None:
        self._client = self._other_side = _connected(self, self._url, self._kind, self._name)

    def write(self, batch: ColumnBatch) -> Mapping[int, str]:
        refused, good, encode = dict[int, str](), list[list[Any]](), self._client.get_encoder().encode
        names = batch.fields if self._kind == "stream" else (self._key, self._value)
        encode_last = _score if self._kind == "zset" else encode
        for row, values in enumerate(zip(*(values_of(batch[name]) for name in names), strict=True)):
            try:
                good.append([*map(encode, values[:-1]), encode_last(values[-1])])
            except Exception as error:
                refused[row] = f"RedisSink cannot write {repr_of(values)}: {text_of_error(error)}"
        if not good:
            return refused
        if self._kind == "hash":
            self._client.hset(self._name, mapping=dict(good))
        elif self._kind == "zset":
            # Of the scores of one member in a batch, the last one counts, or the greatest.
            scores = sorted(good, key=itemgetter(1)) if self._rises else good
            self._client.zadd(self._name, dict(scores), gt=self._rises)
        else:
            pipeline, fields = self._client.pipeline(transaction=False), list(map(encode, names))
            for entry in good:
                pairs = chain.from_iterable(zip(fields, entry, strict=True))
                pipeline.execute_command("XADD", self._name, *self._options, "*", *pairs)
            pipeline.execute()
        return refused


def _check(user: Outside, url: str) -> None:
    check_url(who := type(user).__name__, url, "redis", "rediss", "unix")
    check_installed(who, "redis", "redis", "redis")


def _connected(user: Outside, url: str, kind: str, name: str) -> Any:
    """Return a client. UsageError if it may not be one, or if the key is not of this kind."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # Every error of Redis is one of the moment (no memory, loading, a replica) or a setting: never a row's.
    user.away = (OSError, redis.RedisError)
    client = redis.Redis.from_url(
        user.fill_url(url), protocol=2, socket_timeout=ANSWER_SECS, socket_connect_timeout=ANSWER_SECS,
        retry=Retry(NoBackoff(), 0),
    )
    who = type(user).__name__
    try:
        found = str(client.type(name), "ascii")  # type: ignore[arg-type]
    except redis.AuthenticationError as error:
        client.close()
        raise UsageError(f"{who} is refused by Redis: {user.hide(text_of_error(error))}") from None
    if found not in ("none", kind):
        client.close()
        raise UsageError(f"{who} has the name {name!r}, which is a {found} in Redis; allowed: a {kind}, or a new name")
    return client


def _score(value: Any) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if math.isnan(score):
        raise ValueError(f"{repr_of(value)} is no score; allowed: a number")
    return score
