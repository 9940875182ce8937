"""The checker of `squall chaos` is checked: what is planted is named, and nothing of the engine has a say in it."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from squall import Config
from squall.chaos.checker import Law, SeedVerdict, SourceLaw, judge, learn, learn_source, read_run
from squall.chaos.proof import Expected, Proof, never_again
from squall.chaos.tapping import LineLog, Tapping, digest
from squall.chaos.trial import Outcome, Subject
from squall.testing import FeederSpout
from tests.unit.rig import chain
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
                self.source.append(record, key, self.ns, self.name(number))
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


def laws_of(*references: Planted, keyed: bool = False) -> list[Law]:
    return learn([read_run(run.path) for run in references], keyed)


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


def test_results_of_windows_are_compared_all_together_by_keys(plant: Plant) -> None:
    """Which task makes which of them, and in what order, differs from run to run."""
    label = "file from sums.results/default"

    def planted(results: str) -> Planted:
        run = plant()
        run.task = "sums.results[0]"
        for number, result in enumerate(results, COUNT):
            run.play(number, "emit").more(result, digest(number), label=label).play(number, "ack")
        return run

    references = planted("abc"), planted("de")
    laws, source = laws_of(*references, keyed=True), source_of(*references)
    for results, findings in (("cab", []), ("bcab", []), ("ca", ["lost"]), ("caB", ["lost", "invented"])):
        assert found(planted(results), laws, source) == [(kind, label) for kind in findings]
    assert found(references[1], laws, source) == [("lost", label), ("invented", label)], "and so the proof ends"
    verdict = judged(planted("f"), laws_of(*references), source)
    assert (verdict.good, verdict.asked[label]) == (True, "nothing")
    assert "what comes of each message: windows make its tuples" in verdict.not_shown[0]


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
    assert [law.compares for law in laws_of(plant(), fresh)] == ["count"]


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
            planted.more("s", digest(number), digest(0), label="joined")
            planted.play(number, "ack")
        return planted

    def limit(label: str, said: str) -> str:
        return f"{label}: what comes of each message: {said}"

    references = reference(1), reference(2)
    verdict = judged(reference(3), laws_of(*references))
    assert verdict.good
    assert verdict.asked == {"differs": "count", "more": "nothing", "joined": "nothing"}
    assert verdict.not_shown == [
        "differs: values, only their number: those of lines[0] message 0 differ between runs without faults",
        limit("joined", "its tuples stem from several messages, and from which depends on time"),
        limit("more", "without faults, 1 and 2 tuples of lines[0] message 0 arrived"),
    ]
    assert [law.compares for law in laws_of(*references, keyed=True)] == ["count and keys", "keys", "keys"]


def but(*odd: int, usual: str = "a", then: str = "") -> Callable[[int], str]:
    """Some messages with other values than all others."""
    return lambda number: then if number in odd else usual


def test_messages_that_always_fail_at_first_have_to_arrive(plant: Plant) -> None:
    first, second, bad = (plant(0).play(1, "emit", "fail", "emit", *arrives, "ack") for arrives in ("a", "aa", ""))
    laws = laws_of(first, second)
    assert [law.compares for law in laws] == ["count"]
    assert found(bad, laws) == [("lost", "1")]
    assert [law.compares for law in laws_of(first, plant(0).play(1, "emit", "fail", "emit", "ack"))] == ["nothing"]


def test_what_arrives_only_of_replays_is_not_asked(plant: Plant) -> None:
    """A value that several messages have arrives of whichever comes last."""
    first, second = plant(COUNT, but(3)), plant(COUNT - 1, but(3))
    (law,) = laws_of(first, second.play(COUNT - 1, "emit", "fail", "emit", "a", "ack"))
    assert law.asks == "values"
    others = (number for number in range(COUNT) if number != 3)
    (law,) = laws_of(first, plant(0).all_of(*others, values=but()).play(3, "emit", "fail", "emit", "a", "ack"))
    assert (law.asks, law.why) == ("nothing", "whether anything of lines[0] message 3 arrives depends on replays")


def test_of_a_state_only_the_number_is_asked(plant: Plant) -> None:
    references = [read_run(plant().path) for _ in range(2)]
    assert [law.compares for law in learn(references, of_state={SINK})] == ["count"]
    assert [law.compares for law in learn(references, True, {SINK})] == ["count and keys"]


def test_values_that_depend_on_replays_are_only_counted(plant: Plant) -> None:
    second = plant(COUNT - 1).play(COUNT - 1, "emit", "fail", "emit", "a", "another sum", "ack")
    (law,) = laws_of(plant(), second)
    assert law.asks == "count"


def test_a_source_that_does_not_replay_is_found(plant: Plant) -> None:
    assert never_again(read_run(plant().play(3, "fail").path)) == ["lines[0] message 3"]


@pytest.mark.parametrize(("messages", "stems_from", "kind", "said"), [
    (100, [], "loose", "4 of its 204 tuples are not anchored: none comes back"),
    (0, [], "loose", "4 of its 4 tuples are not anchored"),
    (0, ["no id"], "", ""),
])
def test_tuples_without_anchors_are_a_finding(
    plant: Plant, messages: int, stems_from: list[str], kind: str, said: str
) -> None:
    first, second, third = (plant(messages).more("wxyz", *stems_from) for _ in range(3))
    verdict = judged(third, laws_of(first, second))
    assert kinds(verdict) == [(kind, SINK)] * bool(kind)
    assert said in "".join(finding.what for finding in verdict.findings)
    assert verdict.asked == {SINK: "values" if messages else "nothing"}


def test_records_that_stem_from_ticks_are_not_counted(plant: Plant, laws: list[Law]) -> None:
    verdict = judged(plant().more("f", "no id"), laws)
    assert verdict.good
    assert "1 tuples stem from ticks" in verdict.not_shown[0]


def test_what_is_emitted_again_after_any_failure_has_its_old_id(plant: Plant, laws: list[Law]) -> None:
    """A spout that goes back to a position emits acked messages again; so does its next incarnation."""
    run = plant(COUNT - 1).play(COUNT - 1, "emit", "fail").all_of(COUNT - 2, COUNT - 1)
    run.source = LineLog(run.path / "source-1")
    assert judged(run.play(3, "emit"), laws).good


def test_it_imports_the_standard_library_alone() -> None:
    for source in sources_of("squall"):
        if source.path in ("squall/chaos/checker.py", "squall/chaos/tapping.py"):
            assert {found.module.partition(".")[0] for found in source.imports} <= sys.stdlib_module_names
            assert "from ." not in source.text


def test_tasks_that_use_the_same_id_are_noticed(tmp_path: Path) -> None:
    for task, key in ((0, "aa"), (1, "aa"), (1, "bb")):
        LineLog(tmp_path / f"source-{task}-{key}").append("emit", key, 1, f"lines[{task}] message 0")
    assert {key: message.names_differ for key, message in read_run(tmp_path).messages.items()} == {
        "aa": True, "bb": False,
    }  # fmt: skip


def test_another_result_is_not_shown_with_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(subject: Subject, tapping: Tapping, *_: object) -> Outcome:
        log = LineLog(Path(tapping.directory) / "source-0")
        log.append("emit", "aa", 1, "lines[0] message 0")
        log.append("dead", "aa", 2, "why")
        return Outcome(0.0, drained=True)

    monkeypatch.setattr("squall.chaos.proof.run", run)
    subject = Subject(chain(FeederSpout()).build(), None, Config(max_attempts=1), ())
    proof = Proof(subject, ["kill"], 1.0, tmp_path, result=Mock(begin=lambda: subject.topology, end=lambda: "differs"))
    result = proof.try_seed(1, Expected((), SourceLaw(True, {"aa": ""}, True, {}, []), {}, 1, 1.0))
    assert result.good
    assert any("differs" in line for line in result.verdict.not_shown)
