"""Multilang frames: whatever comes between them, and however they are cut, each message is read once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import ComponentError, Stream, Tuple
from squall.connect.multilang.shell_frames import ShellEmit, ShellReader, emit_of, encode, heartbeat, sent_tuple
from squall.engine.api.stream import SYSTEM_COMPONENT, TICK_STREAM
from squall.engine.api.tuple import Run, TupleSource

ACK = {"command": "ack", "id": "7"}
TEXTS = st.sampled_from(["a word", "{", "}", '{"no": "end', "é", "end", "{}}", "", "{'a': 1}", '{"a": 1}'])


def read(*data: bytes) -> list[Any]:
    reader = ShellReader()
    return [part for piece in data for part in reader.feed(piece)]


def framed(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\nend\n"


@given(st.lists(st.tuples(st.lists(TEXTS), st.booleans()), max_size=6), st.integers(1, 40))
def test_each_message_is_read_whatever_is_printed_before_it(
    printed: list[tuple[list[str], bool]], step: int
) -> None:
    data, sent = b"", []
    for number, (texts, ends_line) in enumerate(printed):
        # Only text that ends with a line can look like a message of its own.
        data += "\n".join(texts).encode() + (b"\n" if ends_line or "{" in "".join(texts) else b"")
        sent.append({"command": "ack", "id": str(number), "deep": {"a": ["\n", "é", {}]}})
        data += framed(sent[-1])
    parts = read(*(data[start : start + step] for start in range(0, len(data), step)))
    # A map that is printed with a line `end` behind it is a frame.
    assert [part for part in parts if isinstance(part, dict) and part != {"a": 1}] == sent


def test_stray_text_is_told() -> None:
    assert read(b"hello\nyou\n" + framed(ACK)) == ["hello\nyou", ACK]
    assert read(b"no line" + framed(ACK)) == ["no line", ACK]
    assert read(b"no frame\nend\n", framed(ACK)) == ["no frame", ACK]
    assert read(b"\xff{\n" + framed(ACK)) == ["\ufffd{", ACK]
    assert read(b'{\n"command":\n"sync"}\nend\n') == [{"command": "sync"}]


@pytest.mark.parametrize("values", [b'"caf\xe9"', b"[" * 20_000 + b"]" * 20_000])
def test_a_message_that_cannot_be_read_is_no_stray_text(values: bytes) -> None:
    with pytest.raises(ValueError, match="command"):
        read(b'{"command": "emit", "tuple": [' + values + b"]}\nend\n")


def test_what_is_left_at_the_end_is_told() -> None:
    reader = ShellReader()
    assert list(reader.feed(framed(ACK) + b"cut o")) == [ACK]
    assert reader.rest() == "cut o"


def test_messages_to_a_program() -> None:
    tup = Tuple((1, "é", ["x"]), TupleSource("words", 3, "default", Stream("a", "b", "c")), Run(1, 2, 1))
    tick = Tuple((1.0,), TupleSource(SYSTEM_COMPONENT, 0, TICK_STREAM, Stream("rate_secs")), Run(0, 0, 1))
    for name, data, comp, stream, task, values in (
        (*sent_tuple(5, tup), "words", "default", 3, [1, "é", ["x"]]),
        (*sent_tuple(6, tick), "__system", "__tick", -1, [1.0]),
        ("-7", heartbeat(7), None, "__heartbeat", -1, []),
    ):
        assert read(data) == [{"id": name, "comp": comp, "stream": stream, "task": task, "tuple": values}]
        assert name in ("5", "-6", "-7")
    assert encode([4, 5]) == b"[4, 5]\nend\n"


@pytest.mark.parametrize("value", [b"x", float("nan"), float("inf"), {1, 2}, object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode([value])


@pytest.mark.parametrize(
    ("message", "emit", "wants"),
    [
        ({"tuple": [1]}, ShellEmit([1]), True),
        ({"tuple": [1], "id": 0, "stream": "s"}, ShellEmit([1], "s", message_id=0), True),
        ({"tuple": [1], "anchors": "7", "need_task_ids": False}, ShellEmit([1], None, None, "7", None, False), False),
        ({"tuple": [1], "anchors": ["7"], "task": 4}, ShellEmit([1], None, 4, ["7"]), False),
        ({"tuple": [1], "task": 0, "stream": None, "anchors": None}, ShellEmit([1], None, 0), True),
        ({"id": {"a": [1]}}, ShellEmit(message_id={"a": [1]}), True),
    ],
)
def test_emits(message: dict[str, Any], emit: ShellEmit, wants: bool) -> None:
    read = emit_of("split[2]", {"command": "emit", **message})
    assert (read, read.wants_tasks) == (emit, wants)


@pytest.mark.parametrize("wrong", [{"tuple": 1}, {"stream": 1}, {"task": "1"}, {"anchors": 7}])
def test_wrong_emits(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(ComponentError, match=rf"split\[2\] sent \{{.*\}}: Expected .* - at `\$\.{name}`"):
        emit_of("split[2]", {"tuple": [1], **wrong})
