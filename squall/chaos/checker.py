"""Tells the fate of every message, from the records that taps around the topology wrote.

Guarantees: every message of the source log is in one class (ok, recovered, dead letter, lost, early, altered), every
record of the sinks belongs to a message or is named; each finding names its message. The engine has no part in this:
the file imports the standard library alone, and is a program: `python -I checker.py RUN --reference RUN ...`.

Relies on: each event being logged before it has an effect: an emit before the engine has it, a record before the sink
has it (so before its ack), an ack before the spout has it. Times are of one monotonic clock.

A run is a directory of `source-*` and `sink-*` files of lines, JSON arrays that end in the crc32 of what precedes it::

    ["emit", key, digest, ns, name]   a spout emits a message         ["fail", key, ns, reason]   it failed
    ["ack", key, ns]                  it was told that it is done     ["dead", key, ns, reason]   it was given up
    ["loose", spout, ns]              it emits without a message id
    ["task", index, [label, ...]]     a sink's first line: which of its tasks; its labels that should decide the task
    ["in", label, [key, ...], digest, ns]   a sink receives what stems from these messages; "tick": from ticks;
                                            "acked by X": bolt X emitted it, without anchors, after its input's ack

The records that a sink should receive for a message are learned from runs without faults, for each way into a sink
(`label`): the exact values, if those runs agree on them; else their number; else that there were any. If it is chance
which messages have any, the values of all messages together are compared, if those runs agree on them. In one of those
runs the source should emit some messages twice, to show which values depend on that. Where most messages agree, those
few that do not are findings: a component that loses one record in a thousand does so without faults.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VALUES, COUNT, PRESENCE, SET, NOTHING = "values", "count", "presence", "set of values", "nothing"
"""Requirements on a way into a sink, strictest first."""
LOST, EARLY, ALTERED, INVENTED, REPEATED, DAMAGED = "lost", "early", "altered", "invented", "repeated", "damaged"
GIVEN_UP, REUSED, MISPLACED, UNSTEADY, LOOSE = "given up", "reused", "misplaced", "unsteady", "loose"
"""Kinds of findings; each is a failure."""
SHOWN_FINDINGS = 100
TICK, ACKED_BY = "tick", "acked by "
"""In place of a key: the record stems from a tick; the bolt that follows emitted it too late."""
_RESULTS = ".results"
_FEW, _SOME, _MANY = 0.05, 0.25, 100
"""Exceptions are a component's fault, and not its way to work, if they are few of at least `_MANY`: tuples without an
anchor `_FEW`, or all; messages that differ between runs without faults `_SOME` (as many as last rows of batches)."""


@dataclass(slots=True)
class Message:
    """The logs' facts about one message."""

    name: str = ""
    names_differ: bool = False
    """True if its emits have several names: several tasks use its id."""
    emits: int = 0
    first_ns: int = 0
    fails: int = 0
    acked_ns: int | None = None
    """Times of its first emit and its first ack."""
    dead: str | None = None
    digests: set[str] = field(default_factory=set)
    received: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Way into a sink -> (digest, ns) of each record; the digest ends in "@" and the task, if that matters."""

    def digests_of(self, label: str, placed: bool) -> Counter[str]:
        """Count the digests of its records; `placed`: with the task."""
        return Counter(digest if placed else value_of(digest) for digest, _ in self.received.get(label, ()))

    @property
    def task(self) -> str:
        """The task that emits it, such as "lines[0]"."""
        return self.name.partition(" ")[0]

    @property
    def spout(self) -> str:
        return self.name.partition("[")[0]

    @property
    def undisturbed(self) -> bool:
        """True if its records are those of exactly one attempt."""
        return self.emits == 1 and self.acked_ns is not None and not self.fails


def value_of(digest: str) -> str:
    """Return a digest without its task."""
    return digest.partition("@")[0]


@dataclass
class CheckedRun:
    """The parsed logs of one run."""

    messages: dict[str, Message] = field(default_factory=dict)
    results: dict[str, Message] = field(default_factory=dict)
    """Those that windows have made, of spouts named so: which of them is which depends on the run."""
    strangers: list[tuple[str, str]] = field(default_factory=list)
    """(way into a sink, key) of records whose message no spout emitted."""
    labels: set[str] = field(default_factory=set)
    loose: Counter[str] = field(default_factory=Counter)
    """Spout -> emits without a message id."""
    joined: set[str] = field(default_factory=set)
    """Ways into a sink with records that stem from several messages."""
    of_no_message: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Way into a sink -> digests of records that stem from no message, with their number."""
    anchored: Counter[str] = field(default_factory=Counter)
    """Way into a sink -> records that stem from messages."""
    after_ack: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(way into a sink, bolt) -> records that the bolt emitted without anchors after the ack of its input."""
    placed: set[str] = field(default_factory=set)
    """Ways into a sink that should decide which task receives a record."""
    by_clock: Counter[str] = field(default_factory=Counter)
    """Way into a sink -> records that stem from ticks alone."""
    reused: dict[str, str] = field(default_factory=dict)
    """Key -> name of messages whose id one incarnation of a spout gave to two emits while nothing had failed."""
    torn: int = 0
    """Number of last lines that a death tore."""
    damaged: list[str] = field(default_factory=list)


def read_lines(path: Path, run: CheckedRun) -> Iterator[list[Any]]:
    """Read the records of a file. The last line may be torn; any other broken one is noted as damaged."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        body, _, crc = line.rpartition(b",")
        if crc == b"%d]" % zlib.crc32(body):
            yield json.loads(body + b"]")
        elif number == len(lines):
            run.torn += 1
        else:
            run.damaged.append(f"{path.name}, line {number}")


def read_run(directory: str | Path) -> CheckedRun:
    """Read every log of a run. FileNotFoundError if there is no such directory."""
    directory = Path(directory)
    run = CheckedRun()
    paths = sorted(directory.iterdir())
    for path in paths:
        if path.name.startswith("source-"):
            _take_source(run, read_lines(path, run))
    run.results = {key: one for key, one in run.messages.items() if one.spout.endswith(_RESULTS)}
    run.messages = {key: one for key, one in run.messages.items() if key not in run.results}
    for path in paths:
        if path.name.startswith("sink-"):
            _take_sink(run, read_lines(path, run))
    return run


def _take_source(run: CheckedRun, records: Iterator[list[Any]]) -> None:
    """Take in the log of one incarnation of a spout's task."""
    seen: set[str] = set()
    failed = False
    for record in records:
        what = record[0]
        if what == "loose":
            run.loose[record[1]] += 1
            continue
        message = run.messages.setdefault(record[1], Message())
        if what == "emit":
            message.first_ns = min(record[3], message.first_ns) if message.emits else record[3]
            message.emits += 1
            message.digests.add(record[2])
            message.names_differ |= message.name not in ("", record[4])
            message.name = record[4]
            # After a failure a spout may emit acked messages once more: all from a position on, for instance.
            if record[1] in seen and not failed:
                run.reused[record[1]] = message.name
            seen.add(record[1])
        elif what == "ack":
            message.acked_ns = min(record[2], message.acked_ns or record[2])
        else:
            failed = True
            message.fails += what == "fail"
            message.dead = record[3] if what == "dead" else message.dead


def _take_sink(run: CheckedRun, records: Iterator[list[Any]]) -> None:
    """Take in the log of one incarnation of a sink's task."""
    task, placed = 0, frozenset[str]()
    for record in records:
        if record[0] == "task":
            task, placed = record[1], frozenset(record[2])
            run.placed |= placed
            continue
        _, label, stems_from, value, at_ns = record
        run.labels.add(label)
        late = [key for key in stems_from if key.startswith(ACKED_BY)]
        keys = [key for key in stems_from if key != TICK and key not in late]
        run.after_ack.update((label, key.removeprefix(ACKED_BY)) for key in late)
        if keys:
            run.anchored[label] += 1
        elif stems_from and not late:
            run.by_clock[label] += 1
        else:
            run.of_no_message[label][value] += 1
        if len(keys) > 1:
            run.joined.add(label)
        digest = f"{value}@{task}" if label in placed else value
        for key in keys:
            message = run.messages.get(key) or run.results.get(key)
            if message is None:
                run.strangers.append((label, key))
            else:
                message.received.setdefault(label, []).append((digest, at_ns))


@dataclass
class Law:
    """The records that one way into a sink must show for each message."""

    label: str
    asks: str
    expected: dict[str, Counter[str]] = field(default_factory=dict)
    """Message's key -> digests with their number, from runs without faults; one "" if only presence is required."""
    placed: bool = False
    """True if these digests are with the task."""
    others: int = 0
    """Fewest records of a message that those runs did not have."""
    of_no_message: Counter[str] | None = field(default_factory=Counter)
    """Digests of the records that stem from no message, with their fewest number; None if those runs disagree."""
    unsteady: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name of a message -> its number of records in each of those runs; only messages that differ, if they are few."""
    by_chance: bool = False
    """True if nothing is asked because other messages have records in each of those runs."""
    of_results: bool = False
    """True if windows have made what it receives."""
    together: frozenset[str] = frozenset()
    """Digests that all messages together show."""


@dataclass
class SourceLaw:
    """The messages that the source must emit, as far as runs without faults agree."""

    ends: bool
    """True if it has an end, and is run to it."""
    names: dict[str, str]
    """Key -> name of the messages that all those runs have."""
    complete: bool
    """True if those runs have the same messages."""
    orders: dict[str, list[str]]
    """Task -> its first keys, in the order in which all those runs emit them; empty if they differ."""
    unstable: list[str]
    """Spouts that emit messages in all those runs, and none twice."""


def learn_source(references: Sequence[CheckedRun], ends: bool) -> SourceLaw:
    """Find the messages that a source always emits, and their order."""
    shared = set.intersection(*(set(run.messages) for run in references))
    orders = [_orders(run) for run in references]
    agreed: dict[str, list[str]] = {}
    for task in sorted(set().union(*orders)):
        each = [order.get(task, []) for order in orders]
        length = min(map(len, each))
        same = all(order[:length] == each[0][:length] for order in each)
        agreed[task] = [key for key, _ in each[0][:length]] if same else []
    names = {key: references[0].messages[key].name for key in shared}
    complete = all(len(run.messages) == len(shared) for run in references)
    busy = set.intersection(*({message.spout for message in run.messages.values()} for run in references))
    unstable = sorted(busy - {references[0].messages[key].spout for key in shared})
    return SourceLaw(ends, names, complete, agreed, unstable)


def _orders(run: CheckedRun) -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Return task -> (key, digests) of its messages, in the order of their first emits."""
    orders: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for key, message in sorted(run.messages.items(), key=lambda item: item[1].first_ns):
        orders[message.task].append((key, frozenset(message.digests)))
    return orders


def learn(references: Sequence[CheckedRun], ends: bool = True) -> list[Law]:
    """Find, for each way into a sink, the strictest law that all runs without faults keep. `ends`: whether those runs
    took the source to its end, and so are equally long."""
    labels = sorted(set().union(*(run.labels for run in references)))
    laws = [_learn_placed(label, references) or _learn_one(label, references) for label in labels]
    for law in laws:
        law.of_no_message = _learn_loose([run.of_no_message.get(law.label, Counter()) for run in references], ends)
        if not law.of_no_message and not any(run.anchored[law.label] for run in references):
            law.asks = NOTHING
        elif (law.by_chance or law.of_results) and ends:
            first, *others = [_together(run, law.label) for run in references]
            if all(other == first for other in others):
                law.asks, law.by_chance, law.together = SET, False, first
    return laws


def _together(run: CheckedRun, label: str) -> frozenset[str]:
    """The values that a way into a sink received of any message."""
    its = (run.messages | run.results).values()
    return frozenset(value for one in its for value in one.digests_of(label, placed=False))


def _learn_loose(seen: Sequence[Counter[str]], ends: bool) -> Counter[str] | None:
    if any(one.keys() != seen[0].keys() for one in seen):
        return None
    return Counter({digest: min(one[digest] for one in seen) if ends else 0 for digest in seen[0]})


def _learn_placed(label: str, references: Sequence[CheckedRun]) -> Law | None:
    """Return the law of values with tasks, or None: a message emitted again has to show that its task is no chance."""
    again = any(not message.undisturbed for run in references for message in run.messages.values())
    if not again or not all(label in run.placed for run in references):
        return None
    law = _learn_one(label, references, placed=True)
    return law if law.asks == VALUES else None


def _learn_one(label: str, references: Sequence[CheckedRun], placed: bool = False) -> Law:
    if any(label in one.received for run in references for one in run.results.values()):
        return Law(label, NOTHING, of_results=True)
    whole: dict[str, list[Counter[str]]] = defaultdict(list)
    again: dict[str, list[Counter[str]]] = defaultdict(list)
    for run in references:
        for key, message in run.messages.items():
            (whole if message.undisturbed else again)[key].append(message.digests_of(label, placed))
    joined = any(label in run.joined for run in references)
    unsteady = {} if joined else _unsteady(whole, placed)
    for key in unsteady:
        del whole[key]
        again.pop(key, None)
    law = _agreed(label, whole, again, joined, placed)
    law.unsteady = {references[0].messages[key].name: totals for key, totals in unsteady.items()}
    return law


def _unsteady(whole: Mapping[str, Sequence[Counter[str]]], placed: bool) -> dict[str, tuple[int, ...]]:
    """Return key -> numbers of records of messages whose records differ between the runs, if these are few."""
    arrive = {key: counters for key, counters in whole.items() if len(counters) > 1 and any(counters)}
    totals = {key: tuple(map(Counter.total, counters)) for key, counters in arrive.items()}
    most = _SOME * len(arrive)
    differ = [key for key, counters in arrive.items() if any(counter != counters[0] for counter in counters)]
    if placed or len(differ) > most:
        differ = [key for key in arrive if len(set(totals[key])) > 1]
    return {key: totals[key] for key in differ} if len(arrive) >= _MANY and len(differ) <= most else {}


def _agreed(
    label: str, whole: dict[str, list[Counter[str]]], again: dict[str, list[Counter[str]]], joined: bool, placed: bool
) -> Law:
    """Find the strictest law that these records keep. `whole`, `again`: key -> records in each run, of messages emitted
    once, and more than once."""
    expected = {key: counters[0] for key, counters in whole.items()}
    fewest = min((counter.total() for counters in whole.values() for counter in counters), default=0)
    # A message emitted again is joined with other messages than before, so neither values nor numbers are the same.
    known = [(expected[key], counter) for key, some in again.items() if key in whole for counter in some]
    # Without records at first and with some later: a value that several messages have, from whichever comes last.
    appears = any(counter and not wanted for wanted, counter in known)
    compared = not joined and not appears and any(len(one) > 1 for one in whole.values())
    if compared and _agree(whole, lambda counter: counter):
        strange = any(counter.keys() - wanted.keys() for wanted, counter in known)
        return Law(label, COUNT if strange else VALUES, expected, placed, fewest)
    if compared and _agree(whole, Counter.total):
        return Law(label, COUNT, expected, others=fewest)
    if appears or any(len(set(map(bool, map(Counter.total, counters)))) > 1 for counters in whole.values()):
        # It is chance which messages arrive, so one that arrived in all these runs need not do so in the next.
        return Law(label, NOTHING, by_chance=True)
    some = Counter({"": 1})
    seen = {key: whole.get(key, []) + again.get(key, []) for key in whole.keys() | again.keys()}
    present = {key: some for key, counters in seen.items() if all(counter.total() for counter in counters)}
    return Law(label, PRESENCE if present else NOTHING, present, others=min(1, fewest))


def _agree(seen: Mapping[str, Sequence[Counter[str]]], of: Callable[[Counter[str]], Any]) -> bool:
    return all(of(one) == of(counters[0]) for counters in seen.values() for one in counters)


@dataclass
class Finding:
    """A violation: an event that must not happen."""

    kind: str
    message: str
    what: str


@dataclass
class SeedVerdict:
    """The result of a check: the fates of all messages."""

    messages: int = 0
    ok: int = 0
    recovered: int = 0
    """Messages emitted more than once, and finally processed."""
    dead_letters: int = 0
    duplicates: int = 0
    """Records that sinks received again because their message was emitted again."""
    counts: dict[str, int] = field(default_factory=dict)
    """Kind of finding -> number."""
    findings: list[Finding] = field(default_factory=list)
    """The first findings of each kind."""
    asked: dict[str, str] = field(default_factory=dict)
    """Way into a sink -> its requirement."""
    not_shown: list[str] = field(default_factory=list)
    """Facts that this proof does not cover."""
    torn_lines: int = 0

    @property
    def good(self) -> bool:
        return not self.counts

    def find(self, kind: str, message: str, what: str) -> None:
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if count <= SHOWN_FINDINGS:
            self.findings.append(Finding(kind, message, what))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}


def judge(
    run: CheckedRun, laws: Sequence[Law], source: SourceLaw | None = None, may_die: Callable[[str], bool] | None = None
) -> SeedVerdict:
    """Judge a run by laws. `may_die(key)`: whether this message may be given up; None: any may."""
    of_results = [law for law in laws if law.of_results]
    verdict = SeedVerdict(messages=len(run.messages) + len(run.results), torn_lines=run.torn)
    for key, message in (run.messages | run.results).items():
        _judge_message(key, message, laws if key in run.messages else of_results, verdict)
        if message.dead is not None and may_die is not None and not may_die(key):
            verdict.find(GIVEN_UP, message.name or key, f"no poison was meant for it: {message.dead}")
    if source is not None:
        _judge_source(run, source, verdict)
    _judge_together(run, laws, verdict)
    for label, key in run.strangers:
        verdict.find(INVENTED, key, f"{label} received it, and no spout emitted it")
    _judge_loose(run, laws, verdict)
    _judge_exceptions(run, laws, verdict)
    for name in run.reused.values():
        verdict.find(REUSED, name, "another emit had this id, and nothing had failed: they cannot be told apart")
    for place in run.damaged:
        verdict.find(DAMAGED, "", f"{place} is neither whole nor the last")
    _say_limits(run, laws, verdict)
    return verdict


def _judge_source(run: CheckedRun, law: SourceLaw, verdict: SeedVerdict) -> None:
    """Find the messages that the source skipped or made up."""
    if law.ends:
        for key in law.names.keys() - run.messages.keys():
            verdict.find(LOST, law.names[key], "the source never emitted it")
        for key in run.messages.keys() - law.names.keys() if law.complete else ():
            verdict.find(INVENTED, run.messages[key].name or key, "the source emits no such message without faults")
        if not law.complete:
            verdict.not_shown.append("the source emits other messages in each run without faults: none is unexpected")
        return
    beyond = Counter(run.messages[key].task for key in run.messages.keys() - law.names.keys())
    for task, keys in law.orders.items():
        reached = max((place for place, key in enumerate(keys) if key in run.messages), default=-1)
        for key in keys[:reached]:
            if key not in run.messages:
                verdict.find(LOST, law.names[key], "the source skipped it: it emitted later ones, and never this one")
        if not keys:
            said = "the order or values of its messages differ between runs without faults: skipped ones are not seen"
            verdict.not_shown.append(f"{task}: {said}")
        elif count := beyond[task]:
            said = f"come after the {len(keys)} that are known from runs without faults: skipped ones are not seen"
            verdict.not_shown.append(f"{task}: {count} messages {said}")


def _judge_together(run: CheckedRun, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    """Compare the values of all messages together."""
    for law in laws:
        if law.asks == SET:
            got = _together(run, law.label)
            if (missing := len(law.together - got)) and not verdict.dead_letters:
                verdict.find(LOST, law.label, f"it lacks {missing} values that it receives without faults")
            if (strange := len(got - law.together)) and not (law.of_results and verdict.dead_letters):
                verdict.find(INVENTED, law.label, f"it received {strange} values that it has not without faults")


def _judge_loose(run: CheckedRun, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    """Compare the records that stem from no message with those of runs without faults."""
    expected = {law.label: law.of_no_message for law in laws}
    for label in sorted(expected.keys() | run.of_no_message.keys()):
        wanted, got = expected.get(label, Counter()), run.of_no_message.get(label, Counter())
        if wanted is None:
            said = "stem from no message (not anchored), and differ between runs without faults: lost or invented ones"
            verdict.not_shown.append(f"{label}: {got.total()} tuples {said} are not seen")
            continue
        if missing := (wanted - got).total():
            verdict.find(LOST, label, f"it lacks {missing} tuples that are not anchored, so nothing emits them again")
        if strange := sum(count for digest, count in got.items() if digest not in wanted):
            verdict.find(INVENTED, label, f"it received {strange} tuples that stem from no message, as in no other run")
        if wanted and not missing and not strange:
            said = "tuples stem from no message (not anchored): all were there, but no replay would bring them back"
            verdict.not_shown.append(f"{label}: {got.total()} {said}")


def _judge_exceptions(run: CheckedRun, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    """Find what few records do differently from all others, and what was emitted so that it is not emitted again."""
    for law in laws:
        for name, totals in law.unsteady.items():
            said = f"{law.label} received {' and '.join(map(str, totals))} records of it in runs without faults"
            how = "lost or repeated" if len(set(totals)) > 1 else "with other values"
            verdict.find(UNSTEADY, name, f"{said}, which agree on most others: by chance it is {how}")
    for (label, bolt), count in sorted(run.after_ack.items()):
        said = f"it received {count} tuples that {bolt} emitted without anchors, after it had acked its input"
        verdict.find(EARLY, label, f"{said}: nothing emits them again if they are lost")
    for label, digests in sorted(run.of_no_message.items()):
        few, count = digests.total(), digests.total() + run.anchored[label]
        if count >= _MANY and (0 < few <= _FEW * count or few == count):
            verdict.find(LOOSE, label, f"{few} of its {count} tuples are not anchored: none comes back if it is lost")


def _judge_message(key: str, message: Message, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    name = message.name or key
    if not message.emits:
        verdict.find(INVENTED, name, "it was answered, and no spout emitted it")
        return
    before = len(verdict.findings), sum(verdict.counts.values())
    if message.dead is not None:
        verdict.dead_letters += 1
    elif message.acked_ns is None:
        failed = f", failed {message.fails} times" if message.fails else ""
        verdict.find(LOST, name, f"it was emitted {message.emits} times{failed}, and never acked")
    for law in laws:
        _judge_records(key, message, law, verdict)
    if (len(verdict.findings), sum(verdict.counts.values())) == before and message.dead is None:
        verdict.ok += 1
        verdict.recovered += message.emits > 1


def _judge_records(key: str, message: Message, law: Law, verdict: SeedVerdict) -> None:
    """Judge the records of one message at one way into a sink."""
    name = message.name or key
    records = message.received.get(law.label, [])
    if not law.placed:
        records = [(value_of(digest), at_ns) for digest, at_ns in records]
    got = Counter(digest for digest, _ in records)
    wanted = law.expected.get(key)
    least = law.others if wanted is None else wanted.total()
    exact = law.asks == VALUES and wanted is not None
    missing = (wanted - got).total() if exact and wanted is not None else max(0, least - got.total())
    if exact and wanted is not None and (strange := sum(got[digest] for digest in got.keys() - wanted.keys())):
        if law.placed and set(map(value_of, got)) <= set(map(value_of, wanted)):
            verdict.find(MISPLACED, name, f"{law.label}: another task received {strange} of its records")
        else:
            said = f"{law.label} received values of it that it has not without faults"
            verdict.find(ALTERED if missing else INVENTED, name, said)
        missing = max(0, missing - strange)
    if law.asks in (VALUES, COUNT) and wanted is not None:
        if got.total() > least * message.emits:
            said = f"{law.label} received {got.total()} records of {message.emits} emits, {least} each without faults"
            verdict.find(REPEATED, name, said)
        else:
            verdict.duplicates += max(0, got.total() - least)
    if message.acked_ns is None:
        return
    in_time = Counter(digest for digest, at_ns in records if at_ns <= message.acked_ns)
    late = (wanted & got) - in_time if exact and wanted is not None else Counter({"": least - in_time.total()})
    if missing:
        verdict.find(LOST, name, f"it was acked, and {law.label} lacks {missing} of its records")
    elif (count := sum(late.values())) > 0:
        verdict.find(EARLY, name, f"it was acked before {law.label} had {count} of its records")


def _say_limits(run: CheckedRun, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    weaker = {
        COUNT: "its values differ between runs without faults, or are a state's: only their number is compared",
        PRESENCE: "their number differs between runs without faults: only that each message arrives is checked",
        SET: "it is chance which messages arrive, or windows make them: only the values of all together are compared",
        NOTHING: "it is chance which messages arrive, or none does without faults: nothing is asked of it",
    }
    for law in laws:
        verdict.asked[law.label] = law.asks
        if law.asks in weaker:
            verdict.not_shown.append(f"{law.label}: {weaker[law.asks]}")
        if law.label in run.placed and not law.placed:
            verdict.not_shown.append(f"{law.label}: which task receives a tuple is not compared")
    for label in sorted(run.labels - {law.label for law in laws}):
        verdict.not_shown.append(f"{label}: it receives nothing without faults: nothing but its messages is checked")
    for label, count in sorted(run.by_clock.items()):
        verdict.not_shown.append(f"{label}: {count} tuples stem from ticks alone: their number depends on time")
    for spout, count in sorted(run.loose.items()):
        verdict.not_shown.append(f"{spout}: {count} tuples were emitted without a message id: nothing is promised")


def main() -> int:
    parser = argparse.ArgumentParser(description="What became of every message of a run.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--reference", type=Path, action="append", default=[], help="a run without faults; two or more")
    parser.add_argument("--all", action="store_true", help="the source ends: it must emit what the references emit")
    options = parser.parse_args()
    run = read_run(options.run)
    references = [read_run(path) for path in options.reference]
    source = learn_source(references, options.all) if references else None
    verdict = judge(run, learn(references, options.all) if references else [], source)
    json.dump(verdict.to_dict(), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
