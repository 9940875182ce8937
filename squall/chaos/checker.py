"""Tells the fate of every message, from the records that taps around the topology wrote.

Guarantees: every message of the source log is in one class (ok, recovered, dead letter, lost, early, altered), every
record of the sinks belongs to a message or is named; each finding names its message. The engine has no part in this:
the file imports the standard library alone.

Relies on: each event being logged before it has an effect: an emit before the engine has it, a record before the sink
has it (so before its ack), an ack before the spout has it. Times are of one monotonic clock.

A run is a directory of `source-*` and `sink-*` files of lines, JSON arrays that end in the crc32 of what precedes it::

    ["emit", key, digest, ns, name]   a spout emits a message         ["fail", key, ns, reason]   it failed
    ["ack", key, ns]                  it was told that it is done     ["dead", key, ns, reason]   it was given up
    ["untracked", spout, ns]          it emits without a message id
    ["in", label, [key, ...], digest, ns]   a sink receives what stems from these messages; none: it is not anchored;
                                            "no id": from a tick, or an emit without a message id

The records that a sink should receive of a message are learned from two runs without faults, for each way into a sink
(`label`). There are two laws: the values, if those runs agree on them, or else their number. In the second run the
source should emit some messages twice, to show which values depend on that. Where neither holds, nothing is asked of
messages one by one, and the reason is told. If the user names what makes a record the same (digests are of that, then),
all records together are compared wherever the values of single messages are not.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VALUES, COUNT, NOTHING = "values", "count", "nothing"
"""Requirements on what a way into a sink receives of each message, strictest first."""
KEYS = "keys"
"""The requirement on what it receives of all messages together, if the user names keys."""
LOST, EARLY, ALTERED, INVENTED, REPEATED, DAMAGED = "lost", "early", "altered", "invented", "repeated", "damaged"
GIVEN_UP, REUSED, LOOSE = "given up", "reused", "loose"
"""Kinds of findings; each is a failure."""
SHOWN_FINDINGS = 100
NO_ID = "no id"
"""In place of a key: the record stems from a tick, or from an emit without a message id."""
_RESULTS = ".results"


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
    received: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Way into a sink -> (digest, ns) of each record."""

    def digests_of(self, label: str) -> Counter[str]:
        """Count the digests of its records."""
        return Counter(digest for digest, _ in self.received.get(label, ()))

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


@dataclass
class CheckedRun:
    """The parsed logs of one run."""

    messages: dict[str, Message] = field(default_factory=dict)
    results: dict[str, Message] = field(default_factory=dict)
    """Those that windows have made, of spouts named so: which of them is which depends on the run."""
    strangers: list[tuple[str, str]] = field(default_factory=list)
    """(way into a sink, key) of records whose message no spout emitted."""
    received: Counter[str] = field(default_factory=Counter)
    """Way into a sink -> its records."""
    without_id: Counter[str] = field(default_factory=Counter)
    """Way into a sink -> records that stem from ticks, or from emits without a message id."""
    unanchored: Counter[str] = field(default_factory=Counter)
    """Way into a sink -> records that stem from nothing."""
    joined: set[str] = field(default_factory=set)
    """Ways into a sink with records that stem from several messages."""
    untracked: Counter[str] = field(default_factory=Counter)
    """Spout -> emits without a message id."""
    reused: dict[str, str] = field(default_factory=dict)
    """Key -> name of messages whose id one incarnation of a spout gave to two emits while nothing had failed."""
    torn: int = 0
    """Number of last lines that a death tore."""
    damaged: list[str] = field(default_factory=list)

    def digests_of(self, label: str) -> frozenset[str]:
        """Return the digests that a way into a sink received of all messages together."""
        messages = (*self.messages.values(), *self.results.values())
        return frozenset(digest for message in messages for digest in message.digests_of(label))


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
    run = CheckedRun()
    paths = sorted(Path(directory).iterdir())
    for path in paths:
        if path.name.startswith("source-"):
            _take_source(run, read_lines(path, run))
    run.results = {key: message for key, message in run.messages.items() if message.spout.endswith(_RESULTS)}
    run.messages = {key: message for key, message in run.messages.items() if key not in run.results}
    for path in paths:
        if path.name.startswith("sink-"):
            _take_sink(run, read_lines(path, run))
    return run


def _take_source(run: CheckedRun, records: Iterator[list[Any]]) -> None:
    """Take in the log of one incarnation of a spout's task."""
    seen: set[str] = set()
    failed = False
    for event, key, *facts in records:
        if event == "untracked":
            run.untracked[key] += 1
            continue
        message = run.messages.setdefault(key, Message())
        if event == "emit":
            at_ns, name = facts
            message.first_ns = min(at_ns, message.first_ns) if message.emits else at_ns
            message.emits += 1
            message.names_differ |= message.name not in ("", name)
            message.name = name
            # After a failure a spout may emit acked messages once more: all from a position on, for instance.
            if key in seen and not failed:
                run.reused[key] = name
            seen.add(key)
        elif event == "ack":
            message.acked_ns = min(facts[0], message.acked_ns or facts[0])
        else:
            failed = True
            message.fails += event == "fail"
            message.dead = facts[1] if event == "dead" else message.dead


def _take_sink(run: CheckedRun, records: Iterator[list[Any]]) -> None:
    """Take in the log of one incarnation of a sink's task."""
    for _, label, stems_from, digest, at_ns in records:
        run.received[label] += 1
        keys = [key for key in stems_from if key != NO_ID]
        if not keys:
            (run.without_id if stems_from else run.unanchored)[label] += 1
        elif len(keys) > 1:
            run.joined.add(label)
        for key in keys:
            message = run.messages.get(key) or run.results.get(key)
            if message is None:
                run.strangers.append((label, key))
            else:
                message.received.setdefault(label, []).append((digest, at_ns))


@dataclass
class Law:
    """The records that one way into a sink must show."""

    label: str
    asks: str = VALUES
    """What each message must show: `VALUES`, `COUNT` or `NOTHING`."""
    why: str = ""
    """Why not its values."""
    expected: dict[str, Counter[str]] = field(default_factory=dict)
    """Message's key -> digests with their number, from runs without faults."""
    others: int = 0
    """Fewest records of a message that those runs did not have."""
    keys: frozenset[str] | None = None
    """Digests of the user's keys that all messages together must show; None if they are not compared."""

    @property
    def compares(self) -> str:
        """Name what is compared, such as "count and keys"."""
        compared = [self.asks] * (self.asks != NOTHING) + [KEYS] * (self.keys is not None)
        return " and ".join(compared) or NOTHING


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
    """Task -> its keys that all those runs have, in their order; empty if that differs."""
    unstable: list[str]
    """Spouts that emit messages in all those runs, and none twice."""


def learn_source(references: Sequence[CheckedRun], ends: bool) -> SourceLaw:
    """Find the messages that a source always emits, and their order."""
    shared = set.intersection(*(set(run.messages) for run in references))
    first, *others = [_orders(run, shared) for run in references]
    agreed = {task: keys if all(order.get(task) == keys for order in others) else [] for task, keys in first.items()}
    names = {key: references[0].messages[key].name for key in shared}
    complete = all(len(run.messages) == len(shared) for run in references)
    busy = set.intersection(*({message.spout for message in run.messages.values()} for run in references))
    unstable = sorted(busy - {references[0].messages[key].spout for key in shared})
    return SourceLaw(ends, names, complete, agreed, unstable)


def _orders(run: CheckedRun, shared: set[str]) -> dict[str, list[str]]:
    """Return task -> those of these keys that it emits, in the order of their first emits."""
    orders: dict[str, list[str]] = defaultdict(list)
    for key in sorted(shared, key=lambda key: run.messages[key].first_ns):
        orders[run.messages[key].task].append(key)
    return orders


def learn(references: Sequence[CheckedRun], keyed: bool = False, of_state: Collection[str] = ()) -> list[Law]:
    """Find, for each way into a sink, the strictest law that all runs without faults keep. `keyed`: whether digests
    are of keys that the user names; `of_state`: ways with values that depend on an order, which faults change."""
    laws = []
    for label in sorted(set().union(*(run.received for run in references))):
        law = _learn_one(label, references)
        if law.asks == VALUES and label in of_state:
            law.asks, law.why = COUNT, "they come from a state, and depend on the order of arrival"
        if keyed and law.asks != VALUES:
            # If the other runs have others, they are refused by this.
            law.keys = references[0].digests_of(label) or None
        laws.append(law)
    return laws


def _learn_one(label: str, references: Sequence[CheckedRun]) -> Law:
    law = Law(label)
    law.asks, law.why = NOTHING, _unfit(label, references)
    if not law.why:
        law.asks, law.why = _agreed(law, references)
    return law


def _unfit(label: str, references: Sequence[CheckedRun]) -> str:
    """Return why none of its tuples belongs to one message; "" if they do."""
    if any(label in message.received for run in references for message in run.results.values()):
        return "windows make its tuples, and which task makes which differs from run to run"
    if any(label in run.joined for run in references):
        return "its tuples stem from several messages, and from which depends on time"
    if not any(label in message.received for run in references for message in run.messages.values()):
        return "none of its tuples stems from a message"
    return ""


def _agreed(law: Law, references: Sequence[CheckedRun]) -> tuple[str, str]:
    """Note what the runs agree on. Returns what to ask, and why not more."""
    asks, why, twice = VALUES, "", False
    replayed: list[tuple[str, Message]] = []
    for run in references:
        for key, message in run.messages.items():
            if not message.undisturbed:
                replayed.append((key, message))
                continue
            digests = message.digests_of(law.label)
            wanted = law.expected.setdefault(key, digests)
            twice |= wanted is not digests
            if wanted.total() != digests.total():
                numbers = f"{wanted.total()} and {digests.total()}"
                return NOTHING, f"without faults, {numbers} tuples of {message.name} arrived"
            if wanted != digests:
                asks, why = COUNT, why or f"those of {message.name} differ between runs without faults"
    if not twice:
        law.expected.clear()
        messages = [message for run in references for message in run.messages.values()]
        law.others = min(bool(message.received.get(law.label)) for message in messages)
        why = "none was processed at its first attempt in each run without faults: one must come of each"
        return COUNT if law.others else NOTHING, why
    law.others = min(digests.total() for digests in law.expected.values())
    for key, message in replayed:
        digests = message.digests_of(law.label)
        wanted = law.expected.get(key, digests)
        if digests and not wanted:
            return NOTHING, f"whether anything of {message.name} arrives depends on replays"
        if digests.keys() - wanted.keys():
            asks, why = COUNT, why or f"those of {message.name} differ between runs without faults"
    return asks, why


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


def judge(
    run: CheckedRun, laws: Sequence[Law], source: SourceLaw | None = None, may_die: Callable[[str], bool] | None = None
) -> SeedVerdict:
    """Judge a run by laws. `may_die(key)`: whether this message may be given up; None: any may."""
    verdict = SeedVerdict(messages=len(run.messages) + len(run.results), torn_lines=run.torn)
    for key, message in (run.messages | run.results).items():
        _judge_message(key, message, laws if key in run.messages else (), verdict)
        if message.dead is not None and may_die is not None and not may_die(key):
            verdict.find(GIVEN_UP, message.name or key, f"no poison was meant for it: {message.dead}")
    if source is not None:
        _judge_source(run, source, verdict)
    _judge_keys(run, laws, verdict)
    for label, key in run.strangers:
        verdict.find(INVENTED, key, f"{label} received it, and no spout emitted it")
    for label, count in sorted(run.unanchored.items()):
        total = run.received[label]
        verdict.find(LOOSE, label, f"{count} of its {total} tuples are not anchored: none comes back if it is lost")
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
            reason = "the order of its messages differs between runs without faults"
            verdict.not_shown.append(f"{task}: {reason}: skipped ones are not seen")
        elif count := beyond[task]:
            reason = f"{count} messages come after the {len(keys)} that are known from runs without faults"
            verdict.not_shown.append(f"{task}: {reason}: skipped ones are not seen")


def _judge_keys(run: CheckedRun, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    """Compare the user's keys of all messages together."""
    for law in laws:
        if law.keys is None:
            continue
        keys = run.digests_of(law.label)
        missing, strange = len(law.keys - keys), len(keys - law.keys)
        if verdict.dead_letters:
            verdict.not_shown.append(f"{law.label}: keys, since there are dead letters, which may have some")
            continue
        if missing:
            verdict.find(LOST, law.label, f"it lacks {missing} keys that it had in the first run")
        if strange:
            verdict.find(INVENTED, law.label, f"it received {strange} keys that it had not in the first run")


def _judge_message(key: str, message: Message, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    name = message.name or key
    if not message.emits:
        verdict.find(INVENTED, name, "it was answered, and no spout emitted it")
        return
    before = sum(verdict.counts.values())
    if message.dead is not None:
        verdict.dead_letters += 1
    elif message.acked_ns is None:
        failed = f", failed {message.fails} times" if message.fails else ""
        verdict.find(LOST, name, f"it was emitted {message.emits} times{failed}, and never acked")
    for law in laws:
        if law.asks != NOTHING:
            _judge_records(key, message, law, verdict)
    if sum(verdict.counts.values()) == before and message.dead is None:
        verdict.ok += 1
        verdict.recovered += message.emits > 1


def _judge_records(key: str, message: Message, law: Law, verdict: SeedVerdict) -> None:
    """Judge the records of one message at one way into a sink."""
    name = message.name or key
    records = message.received.get(law.label, [])
    got = message.digests_of(law.label)
    known = law.expected.get(key)
    least = law.others if known is None else known.total()
    wanted = known if law.asks == VALUES else None
    missing = max(0, least - got.total()) if wanted is None else (wanted - got).total()
    if wanted is not None and (strange := sum(got[digest] for digest in got.keys() - wanted.keys())):
        kind = ALTERED if missing else INVENTED
        verdict.find(kind, name, f"{law.label} received values of it that it has not without faults")
        missing = max(0, missing - strange)
    if known is not None:
        if got.total() > least * message.emits:
            numbers = f"{got.total()} records of {message.emits} emits, {least} each without faults"
            verdict.find(REPEATED, name, f"{law.label} received {numbers}")
        else:
            verdict.duplicates += max(0, got.total() - least)
    if message.acked_ns is None:
        return
    in_time = Counter(digest for digest, at_ns in records if at_ns <= message.acked_ns)
    late = least - in_time.total() if wanted is None else ((wanted & got) - in_time).total()
    if missing:
        verdict.find(LOST, name, f"it was acked, and {law.label} lacks {missing} of its records")
    elif late > 0:
        verdict.find(EARLY, name, f"it was acked before {law.label} had {late} of its records")


def _say_limits(run: CheckedRun, laws: Sequence[Law], verdict: SeedVerdict) -> None:
    for law in laws:
        verdict.asked[law.label] = law.compares
        if law.why:
            kind = "values, only their number" if law.asks == COUNT else "what comes of each message"
            verdict.not_shown.append(f"{law.label}: {kind}: {law.why}")
    for label in sorted(run.received.keys() - verdict.asked.keys()):
        verdict.not_shown.append(f"{label}: it receives nothing without faults: nothing but its messages is checked")
    for label, count in sorted(run.without_id.items()):
        reason = "stem from ticks, or from emits without a message id: nothing tells how many must come"
        verdict.not_shown.append(f"{label}: {count} tuples {reason}")
    for spout, count in sorted(run.untracked.items()):
        verdict.not_shown.append(f"{spout}: {count} tuples were emitted without a message id: nothing is promised")
