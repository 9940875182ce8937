"""The checker of `squall chaos` is checked: what is planted is named, and nothing of the engine has a say in it."""

from __future__ import annotations

import functools
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall.chaos import checker
from squall.chaos.checker import Law, SeedVerdict, SourceLaw, judge, learn, learn_source, read_run
from squall.chaos.line_log import LineLog, digest
from squall.chaos.proof import never_again
from tests.unit.source import sources_of

SINK = "sink from words/default"
COUNT = 20


class Planted:
    """A run as its logs would tell of it: each message is emitted, received by the sink with some values, and acked."""

    task = "lines[0]"

    def __init__(self, parent: Path, count: int = COUNT, values: Callable[[int], str] = lambda number: "ab") -> None:
        """`values`: the values that the sink receives of a message, a letter each."""
        self.path = parent / f"run {len(list(parent.iterdir()))}"
        self.path.mkdir()
        self.source, self.sink = LineLog(self.path / "source-0"), LineLog(self.path / "sink-0")
        self.ns = 0
        self.all_of(*range(count), values=values)

    def all_of(self, *numbers: int, values: Callable[[int], str] = lambda number: "ab") -> Planted:
        """All records of these messages."""
        for number in numbers:
            self.play(number, "emit", *values(number), "ack")
        return self

    def play(self, number: int, *records: str) -> Planted:
        """Some records of one message; all but the names of answers are values that the sink receives."""
        key = digest(number)
        for record in records:
            self.ns += 1
            if record == "emit":
                self.source.append(record, key, digest(("line", number)), self.ns, self.name(number))
            elif record in ("ack", "fail", "dead"):
                self.source.append(record, key, self.ns, "why")
            else:
                self.receive(number, record)
        return self

    def name(self, number: int) -> str:
        return f"{self.task} message {number}"

    def receive(self, number: int, word: str, label: str = SINK) -> None:
        self.sink.append("in", label, [digest(number)], digest((word, number)), self.ns)

    def more(self, words: Sequence[str], *stems_from: str, label: str = SINK) -> Planted:
        """Records of no message, or of any messages together."""
        for word in words:
            self.sink.append("in", label, stems_from, digest(word), self.ns)
        return self


Plant = Callable[..., Planted]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return functools.partial(Planted, tmp_path)


@pytest.fixture
def laws(plant: Plant) -> list[Law]:
    return laws_of(plant(), plant())


def laws_of(*references: Planted, ends: bool = True) -> list[Law]:
    return learn([read_run(run.path) for run in references], ends)


def source_of(*references: Planted, ends: bool = True) -> SourceLaw:
    return learn_source([read_run(run.path) for run in references], ends)


def judged(run: Planted, laws: Sequence[Law], source: SourceLaw | None = None) -> SeedVerdict:
    return judge(read_run(run.path), laws, source)


def kinds(verdict: SeedVerdict) -> list[tuple[str, str]]:
    return [(finding.kind, finding.message) for finding in verdict.findings]


def found(run: Planted, laws: Sequence[Law], source: SourceLaw | None = None) -> list[tuple[str, str]]:
    """Of one message without its task, by its number alone."""
    return [(kind, name.removeprefix("lines[0] message ")) for kind, name in kinds(judged(run, laws, source))]


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
def test_what_is_planted_is_named_and_nothing_else(plant: Plant, laws: list[Law], seed: int) -> None:
    """Records of several messages are mixed; those of one stay in their order."""
    rng = random.Random(seed)
    # After a failure a spout may emit acked messages again, so there is none where an id is to be given again.
    excluded = AFTER_A_FAILURE if seed % 2 else ["an id given again"]
    possible = [what for what in PLANTED if what not in excluded]
    chosen = {number: rng.choice(possible) for number in range(COUNT)}
    left = {number: list(PLANTED[what][0]) for number, what in chosen.items()}
    run = plant(0)
    while left:
        number = rng.choice(list(left))
        run.play(number, left[number].pop(0))
        if not left[number]:
            del left[number]
    verdict = judged(run, laws)
    wanted = [(kind, chosen[number], number) for number in chosen for kind in PLANTED[chosen[number]][1]]
    assert sorted(kinds(verdict)) == sorted(
        (kind, digest(number) if what == "no emit" else run.name(number)) for kind, what, number in wanted
    )
    assert verdict.dead_letters == list(chosen.values()).count("a dead letter")
    assert verdict.recovered == sum("replay" in what or "again" in what for what in chosen.values())
    assert verdict.asked == {SINK: "values"}


def test_what_a_source_with_an_end_leaves_out_or_makes_up_is_named(plant: Plant, laws: list[Law]) -> None:
    source, shorter, longer = source_of(plant(), plant()), plant(COUNT - 1), plant(COUNT + 1)
    assert found(shorter, laws, source) == [("lost", f"{COUNT - 1}")]
    assert found(longer, laws, source) == [("invented", f"{COUNT}")]
    verdict = judged(longer, laws, source_of(plant(), shorter))
    assert verdict.good
    assert verdict.not_shown


def test_results_of_windows_are_compared_all_together(plant: Plant) -> None:
    """Which task makes which of them, and in what order, differs from run to run."""
    label = "file from sums.results/default"

    def planted(results: str) -> Planted:
        run = plant()
        run.task = "sums.results[0]"
        for number, result in enumerate(results, COUNT):
            run.play(number, "emit").more(result, digest(number), label=label).play(number, "ack")
        return run

    references = planted("abc"), planted("abc")
    laws, source = laws_of(*references), source_of(*references)
    for results, findings in (("cab", []), ("bcab", []), ("ca", ["lost"]), ("caB", ["lost", "invented"])):
        assert found(planted(results), laws, source) == [(kind, label) for kind in findings]
    assert judged(planted("f"), laws_of(references[0], planted("de")), source).good


def test_a_message_that_an_endless_source_skips_is_named(plant: Plant, laws: list[Law]) -> None:
    order = source_of(plant(), plant(COUNT - 5), ends=False)
    run = plant(0).all_of(0, 1, 3, 4, COUNT - 1, COUNT, COUNT + 2)
    assert found(run, laws, order) == [("lost", "2")]
    (limit,) = judged(run, laws, order).not_shown
    assert limit.startswith("lines[0]: 3 messages come after the 15 that are known")


def test_skipped_messages_of_a_source_without_an_order_are_said_to_be_unseen(plant: Plant, laws: list[Law]) -> None:
    other = plant(0).all_of(*reversed(range(COUNT)))
    verdict = judged(plant(0).all_of(7), laws, source_of(plant(), other, ends=False))
    assert verdict.good
    assert [limit.partition(":")[0] for limit in verdict.not_shown] == ["lines[0]"]


def test_ids_that_are_new_in_each_run_are_told(plant: Plant) -> None:
    fresh = plant(0).all_of(*range(COUNT, 2 * COUNT))
    assert source_of(plant(), plant()).unstable == []
    assert source_of(plant(), fresh).unstable == ["lines"]


def test_a_dead_letter_that_no_poison_explains_is_found(plant: Plant, laws: list[Law]) -> None:
    run = read_run(plant().play(4711, "emit", "dead").path)
    assert judge(run, laws, may_die=digest(4711).__eq__).good
    assert kinds(judge(run, laws, may_die=digest(1).__eq__)) == [("given up", "lines[0] message 4711")]


def test_only_a_last_line_may_be_torn(plant: Plant, laws: list[Law]) -> None:
    run = plant()
    log = run.path / "sink-0"
    with log.open("ab") as file:
        file.write(b'["in","sink from wor')
    verdict = judged(run, laws)
    assert (verdict.good, verdict.torn_lines) == (True, 1)
    data = bytearray(log.read_bytes())
    data[10] ^= 1
    log.write_bytes(data)
    assert {kind for kind, _ in found(run, laws)} == {"damaged", "lost"}


def test_what_differs_without_faults_is_not_asked_of_runs_with_faults(plant: Plant) -> None:
    def reference(times: int) -> Planted:
        planted = plant(0)
        for number in range(COUNT):
            planted.play(number, "emit").receive(number, f"{times}", "differs")
            for _ in range(times):
                planted.receive(number, "more", "more")
            if number % 2 == times - 1:
                planted.receive(number, "some", "some")
            planted.more("s", digest(number), digest(0), label="joined")
            planted.play(number, "ack")
        return planted

    laws = {law.label: law.asks for law in laws_of(reference(1), reference(2))}
    assert laws == {"differs": "count", "more": "presence", "some": "nothing", "joined": "presence"}


def but(*odd: int, usual: str = "a", then: str = "") -> Callable[[int], str]:
    """Some messages with other values than all others."""
    return lambda number: then if number in odd else usual


def test_a_message_that_arrives_in_every_run_without_faults_has_to_arrive(plant: Plant) -> None:
    laws = laws_of(plant(COUNT, but(5)), plant(COUNT, but(5, usual="aa")))
    assert [law.asks for law in laws] == ["presence"]
    assert found(plant(COUNT, but(5, usual="aaa")), laws) == []
    assert found(plant(COUNT, but(7, usual="aaa")), laws) == [("lost", "7")]


def sampled(at: int) -> Callable[[int], str]:
    return lambda number: "a" if number % 3 == at else ""


@pytest.mark.parametrize(("count", "first", "second", "third"), [
    (COUNT, but(1, usual="aa"), but(1, 2, usual="aaa"), but(3, usual="aa")),
    (400, sampled(0), sampled(1), sampled(0)),
], ids=["the first of a batch, which depends on time", "a sample, of which hardly any message arrives in both runs"])
def test_where_it_is_chance_which_messages_arrive_none_has_to(
    plant: Plant, count: int, first: Any, second: Any, third: Any
) -> None:
    verdict = judged(plant(count, third), laws_of(plant(count, first), plant(count, second)))
    assert (verdict.asked, verdict.good) == ({SINK: "nothing"}, True)
    assert "chance which messages arrive" in verdict.not_shown[0]


def test_messages_that_always_fail_at_first_have_to_arrive(plant: Plant) -> None:
    first, second, bad = (plant(0).play(1, "emit", "fail", "emit", *arrives, "ack") for arrives in ("a", "a", ""))
    laws = laws_of(first, second)
    assert [law.asks for law in laws] == ["presence"]
    assert found(bad, laws) == [("lost", "1")]


def test_values_that_depend_on_replays_are_only_counted(plant: Plant) -> None:
    second = plant(COUNT - 1).play(COUNT - 1, "emit", "fail", "emit", "a", "another sum", "ack")
    (law,) = laws_of(plant(), second)
    assert law.asks == "count"


def test_a_source_that_does_not_replay_is_found(plant: Plant) -> None:
    assert never_again(read_run(plant().play(3, "fail").path)) == ["lines[0] message 3"]


@pytest.mark.parametrize(("bad", "good"), [(0, 1), (2, 1), (1, 2)], ids=["lost", "repeated", "invented"])
def test_what_few_messages_do_without_faults_is_a_finding(plant: Plant, bad: int, good: int) -> None:
    """A bolt that loses or repeats one record in a hundred by chance: each run without faults has others."""
    first, second, third = (
        plant(200, but(*odd, usual="a" * good, then="a" * bad)) for odd in ((3,), (120, 121), (7,))
    )
    laws = laws_of(first, second)
    assert [law.asks for law in laws] == ["values"], "it is asked of all others"
    what = {one.message: one.what for one in judged(first, laws).findings if one.kind == "unsteady"}
    assert set(what) == {first.name(odd) for odd in (3, 120, 121)}
    assert f"received {bad} and {good} records" in what[first.name(3)]
    assert ("lost" if bad < good else "repeated", "7") in found(third, laws)


@pytest.mark.parametrize(("messages", "stems_from", "count", "kind", "said"), [
    (100, [], 4, "loose", "4 of its 204 tuples are not anchored: none comes back"),
    (0, [], 100, "loose", "100 of its 100 tuples are not anchored"),
    (0, ["acked by words"], 3, "early", "received 3 tuples that words emitted without anchors, after it had acked"),
])
def test_few_tuples_without_anchors_and_those_after_an_ack_are_findings(
    plant: Plant, messages: int, stems_from: list[str], count: int, kind: str, said: str
) -> None:
    first, second, third = (plant(messages).more([*map(str, range(count))], *stems_from) for _ in range(3))
    verdict = judged(third, laws_of(first, second))
    assert kinds(verdict) == [(kind, SINK)]
    assert said in verdict.findings[0].what


@pytest.mark.parametrize(("first", "second", "ends", "words", "findings", "unseen"), [
    ("xy", "yxx", True, "xyy", [], "no replay would bring them back"),
    ("xy", "yxx", True, "x", ["lost"], ""),
    ("xy", "yxx", True, "xyz", ["invented"], ""),
    ("", "", True, "z", ["invented"], ""),
    ("a", "bc", True, "d", [], "lost or invented ones are not seen"),
    ("xx", "xx", True, "x", ["lost"], ""),
    ("xx", "xx", False, "x", [], "no replay would bring them back"),
])
def test_records_of_no_message_that_are_missing_or_new_are_found(
    plant: Plant, first: str, second: str, ends: bool, words: str, findings: list[str], unseen: str
) -> None:
    """Unless there are others in each run without faults; runs of an endless source need not have as many."""
    verdict = judged(plant().more(words), laws_of(plant().more(first), plant().more(second), ends=ends))
    assert kinds(verdict) == [(kind, SINK) for kind in findings]
    assert [unseen in said for said in verdict.not_shown] == [True] * bool(unseen)


def test_records_that_stem_from_ticks_are_not_counted(plant: Plant, laws: list[Law]) -> None:
    verdict = judged(plant().more("f", "tick"), laws)
    assert verdict.good
    assert "stem from ticks alone" in verdict.not_shown[0]


@pytest.fixture
def placed(plant: Plant) -> Callable[[Callable[[int, str], int]], Planted]:
    """A run whose sink has two tasks: `task_of(number, word)` receives a record; one message is emitted twice."""

    def made(task_of: Callable[[int, str], int]) -> Planted:
        run = plant(0)
        tasks = [run.sink, LineLog(run.path / "sink-1")]
        for index, log in enumerate(tasks):
            log.append("task", index, [SINK])
        for number in range(COUNT):
            run.play(number, "emit", *(("fail", "emit") if number == COUNT - 1 else ()))
            for word in "ab":
                run.sink = tasks[task_of(number, word)]
                run.play(number, word)
            run.play(number, "ack")
        return run

    return made


def by_number(number: int, word: str) -> int:
    return number % 2


def test_a_record_that_another_task_receives_is_named(placed: Plant) -> None:
    laws = laws_of(placed(by_number), placed(by_number))
    verdict = judged(placed(by_number), laws)
    assert (kinds(verdict), verdict.not_shown) == ([], [])
    assert ("misplaced", "3") in found(placed(lambda number, word: (number + (number == 3)) % 2), laws)
    both = laws_of(*(placed(lambda number, word: word == "b") for _ in range(2)))
    assert ("misplaced", "3") in found(placed(lambda number, word: word == "b" and number != 3), both)


def test_tasks_that_differ_without_faults_are_said_not_to_be_compared(placed: Plant) -> None:
    laws = laws_of(placed(by_number), placed(lambda number, word: number // 2 % 2))
    verdict = judged(placed(lambda number, word: 1), laws)
    assert verdict.asked == {SINK: "values"}
    assert verdict.not_shown == [f"{SINK}: which task receives a tuple is not compared"]


def test_what_is_emitted_again_after_any_failure_has_its_old_id(plant: Plant, laws: list[Law]) -> None:
    """A spout that goes back to a position emits acked messages again; so does its next incarnation."""
    run = plant(COUNT - 1).play(COUNT - 1, "emit", "fail").all_of(COUNT - 2, COUNT - 1)
    run.source = LineLog(run.path / "source-1")
    assert judged(run.play(3, "emit"), laws).good


def test_it_imports_the_standard_library_alone() -> None:
    for source in sources_of("squall"):
        if source.path in ("squall/chaos/checker.py", "squall/chaos/line_log.py"):
            assert {found.module.partition(".")[0] for found in source.imports} <= sys.stdlib_module_names
            assert "from ." not in source.text


def test_it_is_a_program(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, other, lacking = plant(), plant(), plant(COUNT, but(0, usual="ab", then="b"))
    references = ["--reference", str(whole.path), "--reference", str(other.path)]
    for run, code, counts in ((lacking, 1, {"lost": 1}), (whole, 0, {})):
        monkeypatch.setattr("sys.argv", ["checker.py", str(run.path), *references])
        assert checker.main() == code
        assert json.loads(capsys.readouterr().out)["counts"] == counts


def test_tasks_that_use_the_same_id_are_noticed(tmp_path: Path) -> None:
    for task, key in ((0, "aa"), (1, "aa"), (1, "bb")):
        LineLog(tmp_path / f"source-{task}-{key}").append("emit", key, "d", 1, f"lines[{task}] message 0")
    assert {key: message.names_differ for key, message in read_run(tmp_path).messages.items()} == {
        "aa": True, "bb": False,
    }  # fmt: skip
