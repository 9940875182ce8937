"""The checker of `squall chaos` is checked: what is planted is named, and nothing of the engine has a say in it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.chaos import checker
from squall.chaos.checker import Law, Run, Verdict, judge, learn, names_of, read_run
from squall.chaos.line_log import LineLog, digest

SINK = "sink from words/default"
COUNT = 20


OPEN: list[LineLog] = []


@pytest.fixture(autouse=True)
def close_logs() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


class Planted:
    """A run as its logs would tell of it: each message is emitted, received by the sink with two values, and acked."""

    def __init__(self, directory: Path, name: str, count: int = COUNT) -> None:
        self.path = directory / name
        self.path.mkdir()
        self.source, self.sink = LineLog(self.path / "source-0"), LineLog(self.path / "sink-0")
        OPEN.extend((self.source, self.sink))
        self.ns = 0
        for number in range(count):
            self.emit(number)
            self.receive(number, "a")
            self.receive(number, "b")
            self.ack(number)

    def tick(self) -> int:
        self.ns += 1
        return self.ns

    def emit(self, number: int) -> None:
        self.source.append("emit", digest(number), digest(("line", number)), self.tick(), f"lines[0] message {number}")

    def receive(self, number: int, word: str, label: str = SINK) -> None:
        self.sink.append("in", label, [digest(number)], digest((word, number)), self.tick())

    def ack(self, number: int) -> None:
        self.source.append("ack", digest(number), self.tick())

    def fail(self, number: int) -> None:
        self.source.append("fail", digest(number), self.tick(), "worker died")

    def read(self) -> Run:
        return read_run(self.path)

    def without(self, log: str, nth: int) -> None:
        """Take a line out of a log."""
        lines = (self.path / log).read_bytes().splitlines(keepends=True)
        del lines[nth]
        (self.path / log).write_bytes(b"".join(lines))


@pytest.fixture
def laws(tmp_path: Path) -> list[Law]:
    return learn([Planted(tmp_path, "first").read(), Planted(tmp_path, "second").read()])


def kinds(verdict: Verdict) -> list[tuple[str, str]]:
    return [(finding.kind, finding.message) for finding in verdict.findings]


def test_a_run_as_it_should_be(tmp_path: Path, laws: list[Law]) -> None:
    verdict = judge(Planted(tmp_path, "run").read(), laws)
    assert verdict.good
    assert (verdict.messages, verdict.ok, verdict.recovered, verdict.duplicates) == (COUNT, COUNT, 0, 0)
    assert verdict.asked == {SINK: "values"}
    assert verdict.not_shown == []


def test_a_replay_is_no_finding(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run", COUNT - 1)
    last = COUNT - 1
    run.emit(last)
    run.receive(last, "a")
    run.fail(last)
    run.emit(last)
    run.receive(last, "a")
    run.receive(last, "b")
    run.ack(last)
    verdict = judge(run.read(), laws)
    assert verdict.good
    assert (verdict.ok, verdict.recovered, verdict.duplicates) == (COUNT, 1, 1)


def test_a_missing_record_is_named(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.without("sink-0", 14)
    assert kinds(judge(run.read(), laws)) == [("lost", "lines[0] message 7")]


def test_a_message_that_was_never_acked_is_named(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.without("source-0", 2 * 7 + 1)
    assert kinds(judge(run.read(), laws)) == [("lost", "lines[0] message 7")]


def test_a_message_that_was_never_emitted_is_named(tmp_path: Path, laws: list[Law]) -> None:
    whole = [Planted(tmp_path, name).read() for name in ("third", "fourth")]
    verdict = judge(Planted(tmp_path, "run", COUNT - 1).read(), laws, names_of(whole))
    assert kinds(verdict) == [("lost", f"lines[0] message {COUNT - 1}")]


def test_an_altered_record_is_named(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run", COUNT - 1)
    run.emit(COUNT - 1)
    run.receive(COUNT - 1, "a")
    run.receive(COUNT - 1, "B")
    run.ack(COUNT - 1)
    assert kinds(judge(run.read(), laws)) == [("altered", f"lines[0] message {COUNT - 1}")]


@pytest.mark.parametrize("number", [7, 4711])
def test_an_invented_record_is_named(tmp_path: Path, laws: list[Law], number: int) -> None:
    run = Planted(tmp_path, "run")
    run.receive(number, "c")
    name = digest(number) if number >= COUNT else f"lines[0] message {number}"
    assert ("invented", name) in kinds(judge(run.read(), laws))


def test_a_repeated_record_is_named(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.receive(7, "a")
    assert kinds(judge(run.read(), laws)) == [("repeated", "lines[0] message 7")]


def test_an_ack_before_the_sink_had_it_is_named(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run", COUNT - 1)
    run.emit(COUNT - 1)
    run.receive(COUNT - 1, "a")
    run.ack(COUNT - 1)
    run.receive(COUNT - 1, "b")
    assert kinds(judge(run.read(), laws)) == [("early", f"lines[0] message {COUNT - 1}")]


def test_an_answer_to_nothing_is_named(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.ack(4711)
    assert kinds(judge(run.read(), laws)) == [("invented", digest(4711))]


def test_a_dead_letter_is_no_loss_and_is_counted(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.emit(4711)
    run.source.append("dead", digest(4711), run.tick(), "exception")
    verdict = judge(run.read(), laws)
    assert verdict.good
    assert (verdict.ok, verdict.dead_letters) == (COUNT, 1)


def test_only_a_last_line_may_be_torn(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    log = run.path / "sink-0"
    with log.open("ab") as file:
        file.write(b'["in","sink from wor')
    verdict = judge(run.read(), laws)
    assert (verdict.good, verdict.torn_lines) == (True, 1)
    data = bytearray(log.read_bytes())
    data[10] ^= 1
    log.write_bytes(data)
    assert {kind for kind, _ in kinds(judge(run.read(), laws))} == {"damaged", "lost"}


def test_what_differs_without_faults_is_not_asked_of_runs_with_faults(tmp_path: Path) -> None:
    def reference(name: str, times: int) -> Run:
        planted = Planted(tmp_path, name, 0)
        for number in range(COUNT):
            planted.emit(number)
            planted.receive(number, name, "differs")
            for _ in range(times):
                planted.receive(number, "more", "more")
            if number % 2 == times - 1:
                planted.receive(number, "some", "some")
            planted.sink.append("in", "joined", [digest(number), digest(0)], digest("sum"), planted.tick())
            planted.ack(number)
        return planted.read()

    laws = {law.label: law.asks for law in learn([reference("first", 1), reference("second", 2)])}
    assert laws == {"differs": "count", "more": "presence", "some": "nothing", "joined": "presence"}


def test_a_message_that_arrives_in_every_run_without_faults_has_to_arrive(tmp_path: Path) -> None:
    def planted(name: str, silent: int, times: int) -> Planted:
        run = Planted(tmp_path, name, 0)
        for number in range(COUNT):
            run.emit(number)
            for _ in range(0 if number == silent else times):
                run.receive(number, "a")
            run.ack(number)
        return run

    laws = learn([planted("first", 5, 1).read(), planted("second", 5, 2).read()])
    assert [law.asks for law in laws] == ["presence"]
    assert judge(planted("good", 5, 3).read(), laws).good
    assert kinds(judge(planted("bad", 7, 3).read(), laws)) == [("lost", "lines[0] message 7")]


def test_messages_that_always_fail_at_first_have_to_arrive(tmp_path: Path) -> None:
    def planted(name: str, arrives: bool) -> Run:
        run = Planted(tmp_path, name, 0)
        run.emit(1)
        run.fail(1)
        run.emit(1)
        if arrives:
            run.receive(1, "a")
        run.ack(1)
        return run.read()

    laws = learn([planted("first", True), planted("second", True)])
    assert [law.asks for law in laws] == ["presence"]
    assert kinds(judge(planted("bad", False), laws)) == [("lost", "lines[0] message 1")]


def test_values_that_depend_on_replays_are_only_counted(tmp_path: Path) -> None:
    second = Planted(tmp_path, "second", COUNT - 1)
    second.emit(COUNT - 1)
    second.fail(COUNT - 1)
    second.emit(COUNT - 1)
    second.receive(COUNT - 1, "a")
    second.receive(COUNT - 1, "another sum")
    second.ack(COUNT - 1)
    (law,) = learn([Planted(tmp_path, "first").read(), second.read()])
    assert law.asks == "count"


def test_a_source_that_does_not_replay_is_found(tmp_path: Path) -> None:
    run = Planted(tmp_path, "run")
    run.fail(3)
    assert checker.never_again(run.read()) == ["lines[0] message 3"]


def test_it_imports_the_standard_library_alone() -> None:
    for name in ("checker.py", "line_log.py"):
        tree = ast.parse((Path(checker.__file__).parent / name).read_text())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}


def test_it_runs_by_itself(tmp_path: Path) -> None:
    runs = [Planted(tmp_path, name) for name in ("first", "second", "run")]
    runs[2].without("sink-0", 0)
    command = [sys.executable, "-I", "-S", checker.__file__, str(runs[2].path)]
    for run in runs[:2]:
        command += ["--reference", str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert json.loads(done.stdout)["counts"] == {"lost": 1}
    command[4] = str(runs[0].path)
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0
