"""Tells the fate of every message, from the records that taps around the topology wrote.

Guarantees: every message of the source log is in one class (ok, recovered, dead letter, lost, early, altered), every
record of the sinks belongs to a message or is named; each finding names its message. The engine has no part in this:
the file imports the standard library alone and can be run by itself:

    python -I checker.py RUN --reference RUN --reference RUN

Relies on: each event being logged before it has an effect: an emit before the engine has it, a record before the sink
has it (so before its ack), an ack before the spout has it. Times are of one monotonic clock.

A run is a directory of `source-*` and `sink-*` files of lines, JSON arrays that end in the crc32 of what precedes it::

    ["emit", key, digest, ns, name]   a spout emits a message         ["fail", key, ns, reason]   it failed
    ["ack", key, ns]                  it was told that it is done     ["dead", key, ns, reason]   it was given up
    ["loose", spout, ns]              it emits without a message id
    ["in", label, [key, ...], digest, ns]   a sink receives a record that stems from these messages

The records that a sink should receive for a message are learned from runs without faults, for each way into a sink
(`label`): the exact values, if those runs agree on them; else their number; else that there were any. In one of those
runs the source should emit some messages twice, to show which values depend on that.
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

VALUES, COUNT, PRESENCE, NOTHING = "values", "count", "presence", "nothing"
"""Requirements on a way into a sink, strictest first."""
LOST, EARLY, ALTERED, INVENTED, REPEATED, DAMAGED = "lost", "early", "altered", "invented", "repeated", "damaged"
"""Kinds of findings; each is a failure."""
SHOWN_FINDINGS = 100


class Message:
    """The logs' facts about one message."""

    __slots__ = ("acked_ns", "dead", "digests", "emits", "fails", "name", "received")

    def __init__(self) -> None:
        self.name = ""
        self.emits = 0
        self.fails = 0
        self.acked_ns: int | None = None
        """Time of its first ack."""
        self.dead: str | None = None
        self.digests: set[str] = set()
        self.received: dict[str, list[tuple[str, int]]] = {}
        """Way into a sink -> (digest, ns) of each record."""

    def digests_of(self, label: str) -> Counter[str]:
        return Counter(digest for digest, _ in self.received.get(label, ()))

    @property
    def undisturbed(self) -> bool:
        """Whether its records are those of exactly one attempt."""
        return self.emits == 1 and self.acked_ns is not None and not self.fails


@dataclass
class Run:
    """The parsed logs of one run."""

    messages: dict[str, Message] = field(default_factory=dict)
    strangers: list[tuple[str, str]] = field(default_factory=list)
    """(way into a sink, key) of records whose message no spout emitted."""
    labels: set[str] = field(default_factory=set)
    loose: Counter[str] = field(default_factory=Counter)
    """Spout -> emits without a message id."""
    joined: set[str] = field(default_factory=set)
    """Ways into a sink with records that stem from several messages."""
    of_no_message: Counter[str] = field(default_factory=Counter)
    """Way into a sink -> records that stem from no message."""
    torn: int = 0
    """Number of last lines that a death tore."""
    damaged: list[str] = field(default_factory=list)


def read_lines(path: Path, run: Run) -> Iterator[list[Any]]:
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


def read_run(directory: str | Path) -> Run:
    """Read every log of a run. FileNotFoundError if there is no such directory."""
    directory = Path(directory)
    run = Run()
    paths = sorted(directory.iterdir())
    for path in paths:
        if path.name.startswith("source-"):
            for record in read_lines(path, run):
                _take_source(run, record)
    for path in paths:
        if path.name.startswith("sink-"):
            for record in read_lines(path, run):
                _take_sink(run, record)
    return run


def _take_source(run: Run, record: list[Any]) -> None:
    what = record[0]
    if what == "loose":
        run.loose[record[1]] += 1
        return
    message = run.messages.get(record[1])
    if message is None:
        message = run.messages[record[1]] = Message()
    if what == "emit":
        message.emits += 1
        message.digests.add(record[2])
        message.name = record[4]
    elif what == "ack":
        at_ns = record[2]
        message.acked_ns = at_ns if message.acked_ns is None else min(at_ns, message.acked_ns)
    elif what == "fail":
        message.fails += 1
    else:
        message.dead = record[3]


def _take_sink(run: Run, record: list[Any]) -> None:
    _, label, keys, digest, at_ns = record
    run.labels.add(label)
    if not keys:
        run.of_no_message[label] += 1
    if len(keys) > 1:
        run.joined.add(label)
    for key in keys:
        message = run.messages.get(key)
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
    others: int = 0
    """Fewest records of a message that those runs did not have."""


def same_as_source(label: str, run: Run) -> Law:
    """The law for a ledger that the sink writes itself: one record per message, with the source's digest."""
    expected = {key: Counter(message.digests) for key, message in run.messages.items()}
    return Law(label, VALUES, expected, 1)


def learn(references: Sequence[Run]) -> list[Law]:
    """Find, for each way into a sink, the strictest law that all runs without faults keep."""
    labels = sorted(set().union(*(run.labels for run in references)))
    return [_learn_one(label, references) for label in labels]


def _learn_one(label: str, references: Sequence[Run]) -> Law:
    whole: dict[str, list[Counter[str]]] = defaultdict(list)
    again: dict[str, list[Counter[str]]] = defaultdict(list)
    for run in references:
        for key, message in run.messages.items():
            (whole if message.undisturbed else again)[key].append(message.digests_of(label))
    expected = {key: counters[0] for key, counters in whole.items()}
    fewest = min((counter.total() for counters in whole.values() for counter in counters), default=0)
    # A message emitted again is joined with other messages than before, so neither values nor numbers are the same.
    compared = not any(label in run.joined for run in references) and any(len(one) > 1 for one in whole.values())
    if compared and _agree(whole, lambda counter: counter):
        strange = (set(counter) - set(expected[key]) for key, some in again.items() if key in whole for counter in some)
        return Law(label, COUNT if any(strange) else VALUES, expected, fewest)
    if compared and _agree(whole, Counter.total):
        return Law(label, COUNT, expected, fewest)
    some = Counter({"": 1})
    seen = {key: whole.get(key, []) + again.get(key, []) for key in whole.keys() | again.keys()}
    present = {key: some for key, counters in seen.items() if all(counter.total() for counter in counters)}
    return Law(label, PRESENCE if present else NOTHING, present, min(1, fewest))


def _agree(seen: Mapping[str, Sequence[Counter[str]]], of: Callable[[Counter[str]], Any]) -> bool:
    return all(of(one) == of(counters[0]) for counters in seen.values() for one in counters)


def never_again(run: Run) -> list[str]:
    """The names of messages that failed and that their source did not emit again."""
    return [one.name for one in run.messages.values() if one.fails and one.emits <= 1 and one.dead is None]


@dataclass
class Finding:
    """A violation: an event that must not happen."""

    kind: str
    message: str
    what: str


@dataclass
class Verdict:
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


def judge(run: Run, laws: Sequence[Law], all_of: Mapping[str, str] | None = None) -> Verdict:
    """Judge a run by laws. `all_of`: key -> name of messages that the source must have emitted."""
    verdict = Verdict(messages=len(run.messages), torn_lines=run.torn)
    for key, message in run.messages.items():
        _judge_message(key, message, laws, verdict)
    for key, name in (all_of or {}).items():
        if key not in run.messages:
            verdict.find(LOST, name, "the source never emitted it")
    for label, key in run.strangers:
        verdict.find(INVENTED, key, f"{label} received it, and no spout emitted it")
    for place in run.damaged:
        verdict.find(DAMAGED, "", f"{place} is neither whole nor the last")
    _say_limits(run, laws, verdict)
    return verdict


def _judge_message(key: str, message: Message, laws: Sequence[Law], verdict: Verdict) -> None:
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


def _judge_records(key: str, message: Message, law: Law, verdict: Verdict) -> None:
    """Judge the records of one message at one way into a sink."""
    name = message.name or key
    records = message.received.get(law.label, [])
    got = Counter(digest for digest, _ in records)
    wanted = law.expected.get(key)
    least = law.others if wanted is None else wanted.total()
    exact = law.asks == VALUES and wanted is not None
    missing = (wanted - got).total() if exact and wanted is not None else max(0, least - got.total())
    if exact and wanted is not None and (strange := sum(got[digest] for digest in got.keys() - wanted.keys())):
        kind = ALTERED if missing else INVENTED
        verdict.find(kind, name, f"{law.label} received values of it that it has not without faults")
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


def _say_limits(run: Run, laws: Sequence[Law], verdict: Verdict) -> None:
    weaker = {
        COUNT: "its values differ between runs without faults: only their number is compared",
        PRESENCE: "their number differs between runs without faults: only that each message arrives is checked",
        NOTHING: "no message arrives there in every run without faults: nothing is asked of it",
    }
    for law in laws:
        verdict.asked[law.label] = law.asks
        if law.asks in weaker:
            verdict.not_shown.append(f"{law.label}: {weaker[law.asks]}")
    for label in sorted(run.labels - {law.label for law in laws}):
        verdict.not_shown.append(f"{label}: it receives nothing without faults: nothing but its messages is checked")
    for label, count in sorted(run.of_no_message.items()):
        said = f"{label}: {count} tuples stem from no message (not anchored): nothing is promised of them"
        verdict.not_shown.append(said)
    for spout, count in sorted(run.loose.items()):
        said = f"{spout}: {count} tuples were emitted without a message id: nothing is promised of them"
        verdict.not_shown.append(said)
    if not laws:
        verdict.not_shown.append("no sink received anything without faults: only acks were checked")


def names_of(runs: Sequence[Run]) -> dict[str, str]:
    """Key -> name of the messages that all these runs have."""
    if not runs:
        return {}
    keys = set.intersection(*(set(run.messages) for run in runs))
    return {key: runs[0].messages[key].name for key in keys}


def main() -> int:
    parser = argparse.ArgumentParser(description="What became of every message of a run.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--reference", type=Path, action="append", default=[], help="a run without faults; two or more")
    parser.add_argument("--ledger", action="append", default=[], help="a label whose records are the source's own")
    parser.add_argument("--all", action="store_true", help="the source must have emitted all that the references did")
    options = parser.parse_args()
    run = read_run(options.run)
    references = [read_run(path) for path in options.reference]
    laws = [same_as_source(label, run) for label in options.ledger] + (learn(references) if references else [])
    verdict = judge(run, laws, names_of(references) if options.all else None)
    json.dump(verdict.to_dict(), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
