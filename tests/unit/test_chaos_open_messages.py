"""Which messages are open, while the taps write."""

from __future__ import annotations

from pathlib import Path

from squall.chaos.line_log import LineLog
from squall.chaos.open_messages import OpenMessages


def test_messages_are_open_until_they_are_answered(tmp_path: Path) -> None:
    one, two = LineLog(tmp_path / "source-one"), LineLog(tmp_path / "source-two")
    found = OpenMessages(str(tmp_path))
    assert found.read() == set()
    one.append("emit", "a", "digest", 1, 'lines[0] message "x"')
    one.append("emit", "b", "digest", 1, "lines[0] message 2")
    one.append("loose", "lines", 2)
    assert found.read() == {b"a", b"b"}
    one.append("fail", "a", 3, "worker died")
    # Another life of the task, whose file is read first or last.
    two.append("ack", "a", 4)
    two.append("dead", "b", 5, "exception")
    two.append("emit", "c", "digest", 6, "lines[0] message 3")
    assert found.read() == {b"c"}
    with (tmp_path / "source-two").open("ab") as file:
        file.write(b'["ack","c",')
    assert found.read() == {b"c"}
    (tmp_path / "sink-three").write_bytes(b'["emit","z",1,1]\n')
    assert found.read() == {b"c"}
    one.close()
    two.close()
