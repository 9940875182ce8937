"""The checker of `squall chaos` is checked: what is planted is named, and nothing of the engine has a say in it."""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.chaos import checker
from squall.chaos.checker import CheckedRun, Law, SeedVerdict, judge, learn, learn_source, read_run
from squall.chaos.line_log import LineLog, digest
from squall.chaos.proof import never_again

SINK = "sink from words/default"
COUNT = 20


class Planted:
    """A run as its logs would tell of it: each message is emitted, received by the sink with some values, and acked."""

    def __init__(
        self, directory: Path, name: str, count: int = COUNT, values: Callable[[int], str] = lambda number: "ab"
    ) -> None:
        """`values`: the values that the sink receives of a message, a letter each."""
        self.path = directory / name
        self.path.mkdir()
        self.source, self.sink = LineLog(self.path / "source-0"), LineLog(self.path / "sink-0")
        self.ns, self.task = 0, "lines[0]"
        for number in range(count):
            self.all_of(number, values(number))

    def all_of(self, number: int, values: str = "ab") -> None:
        """All records of one message."""
        self.play(number, "emit", *values, "ack")

    def play(self, number: int, *records: str) -> None:
        """Some records of one message; those that are no name of a method here are values that the sink receives."""
        for record in records:
            getattr(self, record)(number) if hasattr(self, record) else self.receive(number, record)

    def tick(self) -> int:
        self.ns += 1
        return self.ns

    def emit(self, number: int) -> None:
        name = f"{self.task} message {number}"
        self.source.append("emit", digest(number), digest(("line", number)), self.tick(), name)

    def receive(self, number: int, word: str, label: str = SINK) -> None:
        self.sink.append("in", label, [digest(number)], digest((word, number)), self.tick())

    def ack(self, number: int) -> None:
        self.source.append("ack", digest(number), self.tick())

    def fail(self, number: int) -> None:
        self.source.append("fail", digest(number), self.tick(), "worker died")

    def dead(self, number: int) -> None:
        self.source.append("dead", digest(number), self.tick(), "exception")

    def read(self) -> CheckedRun:
        return read_run(self.path)

    def without(self, log: str, nth: int) -> None:
        """Take a line out of a log."""
        lines = (self.path / log).read_bytes().splitlines(keepends=True)
        del lines[nth]
        (self.path / log).write_bytes(b"".join(lines))


@pytest.fixture
def laws(tmp_path: Path) -> list[Law]:
    return learn([Planted(tmp_path, "first").read(), Planted(tmp_path, "second").read()])


def kinds(verdict: SeedVerdict) -> list[tuple[str, str]]:
    return [(finding.kind, finding.message) for finding in verdict.findings]


PLANTED = {
    "nothing": (("emit", "a", "b", "ack"), []),
    "a replay": (("emit", "a", "fail", "emit", "a", "b", "ack"), []),
    "a replay after an ack": (("emit", "a", "b", "ack", "fail", "emit", "a", "b", "ack"), []),
    "a missing record": (("emit", "a", "ack"), ["lost"]),
    "no ack": (("emit", "a", "b"), ["lost"]),
    "another value": (("emit", "a", "B", "ack"), ["altered"]),
    "one value more": (("emit", "a", "b", "c", "ack"), ["invented", "repeated"]),
    "a value twice": (("emit", "a", "b", "a", "ack"), ["repeated"]),
    "an ack before a record": (("emit", "a", "ack", "b"), ["early"]),
    "no emit": (("ack",), ["invented"]),
    "a dead letter": (("emit", "a", "dead"), []),
    "an id given again": (("emit", "a", "b", "ack", "emit", "a", "b", "ack"), ["reused"]),
}
"""What is planted -> the records of one message, and the findings."""
AFTER_A_FAILURE = ["a replay", "a replay after an ack", "a dead letter"]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_planted_is_named_and_nothing_else(tmp_path: Path, laws: list[Law], seed: int) -> None:
    """Records of several messages are mixed; those of one stay in their order."""
    rng = random.Random(seed)
    # After a failure a spout may emit acked messages again, so there is none where an id is to be given again.
    excluded = AFTER_A_FAILURE if seed % 2 else ["an id given again"]
    possible = [what for what in PLANTED if what not in excluded]
    chosen = {number: rng.choice(possible) for number in range(COUNT)}
    left = {number: list(PLANTED[what][0]) for number, what in chosen.items()}
    run = Planted(tmp_path, "run", 0)
    while left:
        number = rng.choice(list(left))
        run.play(number, left[number].pop(0))
        if not left[number]:
            del left[number]
    verdict = judge(run.read(), laws)
    wanted = [(kind, chosen[number], number) for number in chosen for kind in PLANTED[chosen[number]][1]]
    assert sorted(kinds(verdict)) == sorted(
        (kind, digest(number) if what == "no emit" else f"lines[0] message {number}") for kind, what, number in wanted
    )
    assert verdict.dead_letters == list(chosen.values()).count("a dead letter")
    assert verdict.recovered == sum("replay" in what or "again" in what for what in chosen.values())
    assert verdict.asked == {SINK: "values"}


def test_what_a_source_with_an_end_leaves_out_or_makes_up_is_named(tmp_path: Path, laws: list[Law]) -> None:
    whole = [Planted(tmp_path, name).read() for name in ("third", "fourth")]
    source = learn_source(whole, ends=True)
    shorter = Planted(tmp_path, "shorter", COUNT - 1).read()
    assert kinds(judge(shorter, laws, source)) == [("lost", f"lines[0] message {COUNT - 1}")]
    run = Planted(tmp_path, "run")
    run.all_of(4711)
    assert kinds(judge(run.read(), laws, source)) == [("invented", "lines[0] message 4711")]
    verdict = judge(run.read(), laws, learn_source([whole[0], shorter], ends=True))
    assert verdict.good
    assert verdict.not_shown


def test_results_of_windows_are_compared_all_together(tmp_path: Path) -> None:
    """Which task makes which of them, and in what order, differs from run to run."""

    def planted(name: str, *results: str) -> CheckedRun:
        run = Planted(tmp_path, name)
        run.task = "sums.results[0]"
        for number, result in enumerate(results, COUNT):
            run.play(number, "emit")
            run.sink.append("in", "file from sums.results/default", [digest(number)], digest(result), run.tick())
            run.play(number, "ack")
        return run.read()

    references = [planted("first", "a", "b", "c"), planted("second", "a", "b", "c")]
    laws, source = learn(references), learn_source(references, ends=True)
    assert judge(planted("third", "c", "a", "b"), laws, source).good
    assert judge(planted("fourth", "b", "c", "a", "b"), laws, source).good
    assert kinds(judge(planted("fifth", "c", "a"), laws, source)) == [("lost", "file from sums.results/default")]
    assert [kind for kind, _ in kinds(judge(planted("sixth", "c", "a", "B"), laws, source))] == ["lost", "invented"]
    clocked = learn([references[0], planted("seventh", "d", "e")])
    assert judge(planted("eighth", "f"), clocked, source).good


def test_a_message_that_an_endless_source_skips_is_named(tmp_path: Path, laws: list[Law]) -> None:
    order = learn_source([Planted(tmp_path, "long").read(), Planted(tmp_path, "short", COUNT - 5).read()], ends=False)
    run = Planted(tmp_path, "run", 0)
    for number in (0, 1, 3, 4, COUNT - 1, COUNT, COUNT + 2):
        run.all_of(number)
    verdict = judge(run.read(), laws, order)
    assert kinds(verdict) == [("lost", "lines[0] message 2")]
    (limit,) = verdict.not_shown
    assert limit.startswith("lines[0]: 3 messages come after the 15 that are known")


def test_ids_that_are_new_in_each_run_are_told(tmp_path: Path) -> None:
    first, second, fresh = Planted(tmp_path, "one"), Planted(tmp_path, "two"), Planted(tmp_path, "new", 0)
    for number in range(COUNT, 2 * COUNT):
        fresh.all_of(number)
    assert learn_source([first.read(), second.read()], ends=True).unstable == []
    assert learn_source([first.read(), fresh.read()], ends=True).unstable == ["lines"]


def test_skipped_messages_of_a_source_without_an_order_are_said_to_be_unseen(tmp_path: Path, laws: list[Law]) -> None:
    other = Planted(tmp_path, "other", 0)
    for number in reversed(range(COUNT)):
        other.all_of(number)
    unordered = learn_source([Planted(tmp_path, "first order").read(), other.read()], ends=False)
    run = Planted(tmp_path, "run", 0)
    run.all_of(7)
    verdict = judge(run.read(), laws, unordered)
    assert verdict.good
    assert [limit.partition(":")[0] for limit in verdict.not_shown] == ["lines[0]"]


def test_a_dead_letter_that_no_poison_explains_is_found(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.play(4711, "emit", "dead")
    assert judge(run.read(), laws, may_die=digest(4711).__eq__).good
    assert kinds(judge(run.read(), laws, may_die=digest(1).__eq__)) == [("given up", "lines[0] message 4711")]


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
    def reference(name: str, times: int) -> CheckedRun:
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
    def planted(name: str, silent: int, times: int) -> CheckedRun:
        return Planted(tmp_path, name, COUNT, lambda number: "" if number == silent else "a" * times).read()

    laws = learn([planted("first", 5, 1), planted("second", 5, 2)])
    assert [law.asks for law in laws] == ["presence"]
    assert judge(planted("good", 5, 3), laws).good
    assert kinds(judge(planted("bad", 7, 3), laws)) == [("lost", "lines[0] message 7")]


def test_where_it_is_chance_which_messages_arrive_none_has_to(tmp_path: Path) -> None:
    """A bolt that emits for the first tuple of each word in a batch: what a batch is depends on time."""

    def planted(name: str, *silent: int) -> CheckedRun:
        return Planted(
            tmp_path, name, COUNT, lambda number: "" if number in silent else "a" * (1 + len(silent))
        ).read()

    laws = learn([planted("first", 1), planted("second", 1, 2)])
    assert [law.asks for law in laws] == ["nothing"]
    verdict = judge(planted("third", 3), laws)
    assert verdict.good
    assert "chance which messages arrive" in verdict.not_shown[0]


def test_messages_that_always_fail_at_first_have_to_arrive(tmp_path: Path) -> None:
    def planted(name: str, *arrives: str) -> CheckedRun:
        run = Planted(tmp_path, name, 0)
        run.play(1, "emit", "fail", "emit", *arrives, "ack")
        return run.read()

    laws = learn([planted("first", "a"), planted("second", "a")])
    assert [law.asks for law in laws] == ["presence"]
    assert kinds(judge(planted("bad"), laws)) == [("lost", "lines[0] message 1")]


def test_values_that_depend_on_replays_are_only_counted(tmp_path: Path) -> None:
    second = Planted(tmp_path, "second", COUNT - 1)
    second.play(COUNT - 1, "emit", "fail", "emit", "a", "another sum", "ack")
    (law,) = learn([Planted(tmp_path, "first").read(), second.read()])
    assert law.asks == "count"


def test_a_source_that_does_not_replay_is_found(tmp_path: Path) -> None:
    run = Planted(tmp_path, "run")
    run.fail(3)
    assert never_again(run.read()) == ["lines[0] message 3"]


@pytest.mark.parametrize(("bad", "good"), [(0, 1), (2, 1), (1, 2)], ids=["lost", "repeated", "invented"])
def test_what_few_messages_do_without_faults_is_a_finding(tmp_path: Path, bad: int, good: int) -> None:
    """A bolt that loses or repeats one record in a hundred by chance: each run without faults has others."""

    def planted(name: str, *odd: int) -> CheckedRun:
        return Planted(tmp_path, name, 200, lambda number: "a" * (bad if number in odd else good)).read()

    first, second = planted("first", 3), planted("second", 120, 121)
    laws = learn([first, second])
    assert [law.asks for law in laws] == ["values"], "it is asked of all others"
    found = {one.message: one.what for one in judge(first, laws).findings if one.kind == "unsteady"}
    assert set(found) == {f"lines[0] message {odd}" for odd in (3, 120, 121)}
    assert f"received {bad} and {good} records" in found["lines[0] message 3"]
    others = [(kind, name) for kind, name in kinds(judge(planted("third", 7), laws)) if kind != "unsteady"]
    assert ("lost" if bad < good else "repeated", "lines[0] message 7") in others


def test_many_messages_that_differ_are_no_finding(tmp_path: Path) -> None:
    """A bolt that samples: of what arrives at all, hardly any message arrives in both runs."""

    def planted(name: str, first: int) -> CheckedRun:
        return Planted(tmp_path, name, 400, lambda number: "a" if number % 3 == first else "").read()

    references = [planted("first", 0), planted("second", 1)]
    laws = learn(references)
    assert [law.asks for law in laws] == ["nothing"]
    assert judge(references[0], laws).good


def test_few_tuples_without_anchors_among_many_with_them_are_a_finding(tmp_path: Path) -> None:
    def planted(name: str) -> CheckedRun:
        run = Planted(tmp_path, name, 100)
        for number in range(4):
            run.sink.append("in", SINK, [], digest(number), run.tick())
        return run.read()

    laws = learn([planted("first"), planted("second")])
    verdict = judge(planted("third"), laws)
    assert kinds(verdict) == [("loose", SINK)]
    assert "4 of its 204 tuples are not anchored, all others are" in verdict.findings[0].what


def test_what_is_emitted_after_the_ack_of_its_input_is_named(tmp_path: Path) -> None:
    def planted(name: str) -> CheckedRun:
        run = Planted(tmp_path, name, 0)
        for number in range(3):
            run.play(number, "emit", "ack")
            run.sink.append("in", SINK, ["acked by words"], digest(number), run.tick())
        return run.read()

    laws = learn([planted("first"), planted("second")])
    verdict = judge(planted("third"), laws)
    assert kinds(verdict) == [("early", SINK)]
    assert "received 3 tuples that words emitted without anchors, after it had acked" in verdict.findings[0].what


class Loose(Planted):
    """A run with records that stem from no message."""

    def __init__(self, directory: Path, name: str, *words: str) -> None:
        super().__init__(directory, name)
        for word in words:
            self.sink.append("in", SINK, [], digest(word), self.tick())


def test_records_of_no_message_that_are_missing_or_new_are_found(tmp_path: Path) -> None:
    laws = learn([Loose(tmp_path, "first", "x", "y").read(), Loose(tmp_path, "second", "y", "x", "x").read()])
    good = judge(Loose(tmp_path, "good", "x", "y", "y").read(), laws)
    assert good.good
    assert good.not_shown, "nothing would have brought them back"
    assert kinds(judge(Loose(tmp_path, "lacks", "x").read(), laws)) == [("lost", SINK)]
    assert kinds(judge(Loose(tmp_path, "more", "x", "y", "z").read(), laws)) == [("invented", SINK)]


def test_a_record_of_no_message_is_invented_if_there_are_none_without_faults(tmp_path: Path, laws: list[Law]) -> None:
    assert kinds(judge(Loose(tmp_path, "run", "z").read(), laws)) == [("invented", SINK)]


def test_records_of_no_message_that_differ_without_faults_are_said_to_be_unseen(tmp_path: Path) -> None:
    laws = learn([Loose(tmp_path, "first", "12:00").read(), Loose(tmp_path, "second", "12:05", "12:06").read()])
    verdict = judge(Loose(tmp_path, "run", "12:09").read(), laws)
    assert verdict.good
    assert "lost or invented ones are not seen" in verdict.not_shown[0]


def test_records_that_stem_from_ticks_are_not_counted(tmp_path: Path, laws: list[Law]) -> None:
    run = Planted(tmp_path, "run")
    run.sink.append("in", SINK, ["tick"], digest("flushed"), run.tick())
    verdict = judge(run.read(), laws)
    assert verdict.good
    assert "stem from ticks alone" in verdict.not_shown[0]


def test_endless_runs_need_not_have_as_many_records_of_no_message(tmp_path: Path) -> None:
    references = [Loose(tmp_path, name, "x", "x").read() for name in ("first", "second")]
    assert judge(Loose(tmp_path, "run", "x").read(), learn(references, ends=False)).good
    assert not judge(Loose(tmp_path, "other", "x").read(), learn(references, ends=True)).good


class Placed(Planted):
    """A run whose sink has two tasks: `task_of(number, word)` receives a record; one message is emitted twice."""

    def __init__(self, directory: Path, name: str, task_of: Callable[[int, str], int]) -> None:
        super().__init__(directory, name, 0)
        tasks = [self.sink, LineLog(self.path / "sink-1")]
        for index, log in enumerate(tasks):
            log.append("task", index, [SINK])
        for number in range(COUNT):
            self.emit(number)
            if number == COUNT - 1:
                self.fail(number)
                self.emit(number)
            for word in "ab":
                self.sink = tasks[task_of(number, word)]
                self.receive(number, word)
            self.ack(number)


def by_number(number: int, word: str) -> int:
    return number % 2


def test_a_record_that_another_task_receives_is_named(tmp_path: Path) -> None:
    laws = learn([Placed(tmp_path, name, by_number).read() for name in ("first", "second")])
    verdict = judge(Placed(tmp_path, "good", by_number).read(), laws)
    assert verdict.good
    assert verdict.not_shown == []
    moved = Placed(tmp_path, "moved", lambda number, word: (number + (number == 3)) % 2)
    assert ("misplaced", "lines[0] message 3") in kinds(judge(moved.read(), laws))
    both = learn([Placed(tmp_path, name, lambda number, word: word == "b").read() for name in ("third", "fourth")])
    one_of_all = Placed(tmp_path, "one", lambda number, word: word == "b" and number != 3)
    assert ("misplaced", "lines[0] message 3") in kinds(judge(one_of_all.read(), both))


def test_tasks_that_differ_without_faults_are_said_not_to_be_compared(tmp_path: Path) -> None:
    laws = learn([
        Placed(tmp_path, "first", by_number).read(),
        Placed(tmp_path, "second", lambda number, word: number // 2 % 2).read(),
    ])  # fmt: skip
    verdict = judge(Placed(tmp_path, "run", lambda number, word: 1).read(), laws)
    assert verdict.asked == {SINK: "values"}
    assert verdict.not_shown == [f"{SINK}: which task receives a tuple is not compared"]


def test_what_is_emitted_again_after_any_failure_has_its_old_id(tmp_path: Path, laws: list[Law]) -> None:
    """A spout that goes back to a position emits acked messages again; so does its next incarnation."""
    run = Planted(tmp_path, "run", COUNT - 1)
    run.play(COUNT - 1, "emit", "fail")
    for number in (COUNT - 2, COUNT - 1):
        run.all_of(number)
    run.source.close()
    run.source = LineLog(run.path / "source-1")
    run.emit(3)
    assert judge(run.read(), laws).good


def test_it_imports_the_standard_library_alone() -> None:
    for name in ("checker.py", "line_log.py"):
        tree = ast.parse((Path(checker.__file__).parent / name).read_text())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}


def test_it_is_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [Planted(tmp_path, name) for name in ("first", "second", "run")]
    runs[2].without("sink-0", 0)
    references = ["--reference", str(runs[0].path), "--reference", str(runs[1].path)]
    for run, code, counts in ((runs[2], 1, {"lost": 1}), (runs[0], 0, {})):
        monkeypatch.setattr("sys.argv", ["checker.py", str(run.path), *references])
        assert checker.main() == code
        assert json.loads(capsys.readouterr().out)["counts"] == counts


def test_tasks_that_use_the_same_id_are_noticed(tmp_path: Path) -> None:
    for task, key in ((0, "aa"), (1, "aa"), (1, "bb")):
        LineLog(tmp_path / f"source-{task}-{key}").append("emit", key, "d", 1, f"lines[{task}] message 0")
    assert {key: message.names_differ for key, message in read_run(tmp_path).messages.items()} == {
        "aa": True, "bb": False,
    }  # fmt: skip
