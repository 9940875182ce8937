"""`squall queue` as users type it: pipes, kills, wrong input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from squall.connect import Queue
from squall.testing import wait_for
from tests.process.cli import ROOT, command, environment
from tests.process.standing_tools import Finished, in_process


def put(queue: Path, lines: bytes, *options: str) -> Finished:
    """From a file beside it."""
    file = queue.with_name("lines")
    file.write_bytes(lines)
    return in_process("queue", "put", queue, file, *options)


def shown(command: str, queue: Path, *options: str) -> str:
    done = in_process("queue", command, queue, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lines_go_in_and_come_out(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    lines = "".join(f"line {number} é\t\n" for number in range(4999)) + "long \x1b\r" + "x" * 50_000 + "\n"
    assert put(path, lines.encode()).stdout == f"5,000 records put into {path}\n"
    assert shown("peek", path, "-n", "2") == "line 0 é\t\nline 1 é\t\n"
    counts = json.loads(shown("stat", path, "--json"))
    assert (counts.pop("waiting"), counts.pop("open"), counts.pop("consumers"), set(counts)) == (
        5000, 0, 0, {"size_bytes"}
    )
    assert shown("get", path, "-n", "3") + shown("get", path) == lines
    assert shown("stat", path).startswith("0 waiting, 0 open at 0 consumers, ")
    assert shown("get", path) == ""


def test_rows_go_in_and_come_out_as_json(tmp_path: Path) -> None:
    path, lines = tmp_path / "queue", '["a", 1, null]\n["b\\n", {"c": [2.5]}]\n'
    assert put(path, lines.encode(), "--json").returncode == 0
    assert shown("peek", path) == lines
    found = shown("get", path, "--json")
    assert [json.loads(line) for line in found.splitlines()] == [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize(("lines", "option", "told", "kept"), [
    (b"a\nb\xff\nc\n", (), "line 2 is no UTF-8", 1),
    (b'["a"]\n["b"]\n{}\n["c"]\n', ("--json",), "line 3 is no JSON list of values", 2),
    (b'["a"]\n[1\n', ("--json",), "line 2 is no JSON", 1),
    (b'["a"]\n["\\ud800"]\n', ("--json",), "line 2: a queue cannot hold ('\\ud800',): ", 1),
])
def test_a_line_that_cannot_be_put_is_named(
    tmp_path: Path, lines: bytes, option: tuple[str, ...], told: str, kept: int
) -> None:
    done = put(tmp_path / "queue", lines, *option)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert told in line
    assert line.endswith("the lines before it are put")
    assert Queue(tmp_path / "queue").counts().waiting == kept


@pytest.mark.parametrize("command", ["get", "peek", "stat"])
def test_a_queue_that_is_not_there_is_not_made(tmp_path: Path, command: str) -> None:
    done = in_process("queue", command, tmp_path / "nothing")
    assert done.returncode == 2
    assert "holds no queue; `squall queue put " in done.stderr
    assert not (tmp_path / "nothing").exists()


def test_nothing_is_taken_without_a_place_to_print_it(tmp_path: Path) -> None:
    Queue(tmp_path).put([("a",)])
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command("queue", "get", tmp_path)]
    done = subprocess.run(closed, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 2
    assert b"stdout is closed; nothing is taken from the queue" in done.stderr
    assert Queue(tmp_path).counts().waiting == 1


def test_what_is_written_is_put_at_once_and_a_reader_that_goes_loses_nothing(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    put = subprocess.Popen(
        command("queue", "put", tmp_path), cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert put.stdin is not None
    put.stdin.write(b"".join(b"%d\n" % number for number in range(100_000)))
    put.stdin.flush()
    wait_for("all complete lines", lambda: queue.counts().waiting >= 99_999, 60)
    put.kill()
    put.communicate()
    waiting = queue.counts().waiting
    get = subprocess.Popen(
        command("queue", "get", tmp_path), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert get.stdout is not None
    first = get.stdout.readline()
    wait_for("it to be in the middle", lambda: queue.counts().open > 0, 60)
    get.kill()
    *whole, _ = (first + get.stdout.read()).split(b"\n")
    seen = set(map(int, whole))
    get.communicate()
    rest = {int(record.row[0]) for record in queue.peek(waiting) if record.row is not None}
    assert seen | rest >= set(range(waiting))
    assert queue.counts().open == 0
