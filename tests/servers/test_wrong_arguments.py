"""What sources and sinks of servers refuse where they are made, or where their worker begins: no server is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall import TopologyBuilder, UsageError
from squall.connect import (
    HttpSource,
    KafkaSink,
    KafkaSource,
    RabbitSink,
    RabbitSource,
    RedisSink,
    RedisSource,
    Sink,
    Source,
    SqlSource,
)
from tests.process.parts import Numbers
from tests.servers.once import counted

AMQP, AWAY, REDIS = "amqp://host", "127.0.0.1:9", "redis://host"
NO_CONTEXT: Any = None


def check_refusals(*expected: tuple[Source | Sink, str]) -> None:
    """Connecting each is an error that ends its worker, and is told without the password "p@ss/word"."""
    context: Any = SimpleNamespace(topology_name="wrong", component_id="in", task_index=0)
    for client, why in expected:
        with pytest.raises(UsageError) as refused:
            client.connect(context)
        client.disconnect()
        said = str(refused.value)
        assert why in said
        assert "p@ss" not in said
        assert "p%40ss" not in said


@pytest.mark.parametrize(("make", "why"), [
    (lambda: KafkaSource("", "t"), "KafkaSource has servers ''; allowed: a text, as 'localhost:9092', 'lines'"),
    (lambda: KafkaSource(AWAY, "t", begin="now"), "KafkaSource has begin 'now'"),
    (lambda: KafkaSource(AWAY, "t", group="g", until_end=True), "KafkaSource has group 'g'; allowed: a name, without"),
    (lambda: KafkaSink(AWAY, "t", config={"sasl.password": "secret"}), "KafkaSink has its sasl.password written out"),
    (lambda: KafkaSource(AWAY, "t", config={"group.id": "g"}), "KafkaSource has group.id in its config, which it sets"),
    (lambda: RabbitSource("amqp://u:secret@host/", "in"), "RabbitSource has its password written out"),
    (lambda: RabbitSource("http://host", "in"), "RabbitSource has url 'http://host'; allowed: amqp://HOST"),
    (lambda: RabbitSource(AMQP, ""), "RabbitSource has queue ''; allowed: a name"),
    (lambda: RabbitSource(AMQP, "in", prefetch=0), "RabbitSource has prefetch 0; allowed: 1 to 65535"),
    (lambda: RabbitSink(AMQP), "RabbitSink has routing_key '', key '', exchange ''"),
    (lambda: RedisSource("redis://host/0?db=1&password=secret", "in", "g"), "RedisSource has its password written out"),
    (lambda: RedisSource("redi://:secret@host", "in", "g"), "RedisSource has url 'redi://***@host'; allowed: redis"),
    (lambda: RedisSource(REDIS, "", "g"), "RedisSource has stream ''; allowed: a name"),
    (lambda: RedisSource(REDIS, "in", "g", fields="value"), "RedisSource has fields 'value'; allowed: names"),
    (lambda: RedisSource(REDIS, "in", "g", claim_secs=1), "claim_secs 1; allowed: "),
    (lambda: RedisSink(REDIS), "RedisSink has stream '', hash '' and sorted_set ''; allowed: the name of one"),
    (lambda: RedisSink(REDIS, stream="out", maxlen=-1), "RedisSink has maxlen -1; allowed: a number"),
    (lambda: SqlSource("db", "", ("id",), position="id"), "connect 'db'; allowed: a function"),  # type: ignore[arg-type]
    (lambda: SqlSource(print, "", ("id",), position="at"), "position 'at'; allowed: one of its fields, ('id',)"),
    # State does not know a record again that has no name.
    (lambda: counted(RabbitSource(AMQP, "in")), 'set identity="message_id" if each '),
    (lambda: counted(HttpSource(80), field="body"), 'set identity="Idempotency-Key" if each '),
])
def test_wrong_arguments_are_refused_and_no_secret_is_told(make: Callable[[], object], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)) as refused:
        make()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("config", "why"), [
    ({"sasl.password": "${SQUALL_NOT_SET}"}, "KafkaSink needs the environment variable SQUALL_NOT_SET"),
    ({"no.such": "thing"}, 'KafkaSink has a wrong config: No such configuration property: "no.such"'),
])
def test_wrong_settings_are_told_where_the_worker_runs(config: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        KafkaSink(AWAY, "t", config=config).connect(NO_CONTEXT)


def test_a_field_that_is_not_there_is_refused(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(str(tmp_path), 1))
    builder.set_bolt("sink", KafkaSink(AWAY, "t")).shuffle_grouping("numbers")
    with pytest.raises(UsageError, match="value"):
        builder.build()
