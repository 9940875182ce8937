"""Compares what was tallied, bucket by bucket: the second half of `squall verify` (`pipeline.tally` is the first).

Guarantees that every line and every word of a bucket counts once, as right or as one of `KINDS`; that of each kind the
first differences are named, and no more than these leave a bucket, a task, and Spark. Runs in Spark's Python workers,
imports nothing of it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy
import pyarrow
from pyarrow import compute

from squall.pipeline.tally import DAMAGED, TORN, UNREAD, Numbers

#: Differences of each kind that are named; the rest are only counted.
SHOWN = 10
KINDS = ("missing", "invented", "different")
OK = "ok"
LINES, WORDS = "lines", "words"


class Finding(NamedTuple):
    """A number of lines or words of a kind, and their repeats; or one of them."""

    about: str
    kind: str
    things: int | None = None
    repeats: int | None = None
    partition: int | None = None
    offset: int | None = None
    word: str | None = None
    expected: int | None = None
    """By the feed."""
    told: int | None = None
    """By the result."""


#: Partitions, offsets and numbers of words; of one partition, the last two.
_Lines: TypeAlias = tuple[Numbers, Numbers, Numbers]
_Offsets: TypeAlias = tuple[Numbers, Numbers]
_NONE: _Offsets = (numpy.zeros(0, numpy.int64), numpy.zeros(0, numpy.int64))


def judge(bucket: Iterable[tuple[Any, Any]]) -> Iterator[Finding]:
    """The findings of all that was tallied for a bucket."""
    sides: dict[bool, list[Any]] = {True: [], False: []}
    for side, data in bucket:
        if isinstance(side, str):
            yield Finding(LINES, side, word=data)
        else:
            sides[side].append(data)
    some = sides[True] or sides[False]
    if some:
        yield from (_words if len(some[0]) == 2 else _lines)(sides[True], sides[False])


def fold(findings: Iterable[Finding]) -> list[Finding]:
    """Add up findings, and keep the first differences of each kind."""
    counted: Counter[tuple[str, str, str]] = Counter()
    named: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        key = finding.about, finding.kind
        if finding.things is not None:
            counted.update({(*key, "things"): finding.things, (*key, "repeats"): finding.repeats or 0})
        elif finding.kind in (UNREAD, TORN, DAMAGED):
            named.setdefault(key, []).append(finding)
        else:
            named[key] = heapq.nsmallest(SHOWN, [*named.get(key, ()), finding], key=_order)
    totals = [
        Finding(about, kind, counted[about, kind, "things"], counted[about, kind, "repeats"])
        for about, kind in sorted({key[:2] for key in counted})
    ]
    return [*totals, *chain.from_iterable(named.values())]


def _order(finding: Finding) -> tuple[int, int, str]:
    return finding.partition or 0, finding.offset or 0, finding.word or ""


def _lines(feed: list[_Lines], ledger: list[_Lines]) -> Iterator[Finding]:
    here, there = _by_partition(feed), _by_partition(ledger)
    for partition in here.keys() | there.keys():
        yield from _lines_of(partition, here.get(partition, _NONE), there.get(partition, _NONE))


def _lines_of(partition: int, feed: _Offsets, ledger: _Offsets) -> Iterator[Finding]:
    offsets, words, _, _ = _by_offset(feed)
    found, least, most, times = _by_offset(ledger)
    at = numpy.searchsorted(offsets, found)
    # Nothing is at the end.
    known = (at < len(offsets)) & (numpy.append(offsets, 0)[at] == found)
    expected = numpy.append(words, 0)[at]
    right = known & (least == expected) & (most == expected)
    missing = numpy.ones(len(offsets), bool)
    missing[at[known]] = False
    # If a line was counted several times with different numbers, show a wrong one.
    told = numpy.where(least != expected, least, most)
    nothing = numpy.zeros(len(offsets), numpy.int64)
    for kind, where, places, repeats, shown in (
        (OK, right, found, times - 1, None),
        ("missing", missing, offsets, nothing, (words, nothing)),
        ("invented", ~known, found, times - 1, (expected, told)),
        ("different", known & ~right, found, times - 1, (expected, told)),
    ):
        if where.any():
            yield Finding(LINES, kind, int(where.sum()), int(repeats[where].sum()))
        if shown is not None:
            for index in numpy.flatnonzero(where)[:SHOWN].tolist():
                numbers = [int(column[index]) for column in shown]
                yield Finding(LINES, kind, None, None, partition, int(places[index]), None, *numbers)


def _by_partition(parts: list[_Lines]) -> dict[int, _Offsets]:
    if not parts:
        return {}
    partitions, offsets, words = map(numpy.concatenate, zip(*parts, strict=True))
    order = numpy.argsort(partitions, kind="stable")
    partitions, offsets, words = partitions[order], offsets[order], words[order]
    cuts = numpy.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    firsts = partitions[numpy.append(0, cuts)].tolist()
    return dict(zip(firsts, zip(numpy.split(offsets, cuts), numpy.split(words, cuts), strict=True), strict=True))


def _by_offset(lines: _Offsets) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The offsets in order, each once; of each the least and the largest number of words, and how often it is there."""
    order = numpy.lexsort(lines[::-1])
    offsets, words = lines[0][order], lines[1][order]
    is_first = numpy.ones(len(order), bool)
    is_first[1:] = offsets[1:] != offsets[:-1]
    begins = numpy.flatnonzero(is_first)
    ends = numpy.append(begins[1:], len(order))[: len(begins)]
    return offsets[begins], words[begins], words[ends - 1], ends - begins


def _words(feed: list[tuple[Any, Any]], counts: list[tuple[Any, Any]]) -> Iterator[Finding]:
    tables = [
        pyarrow.table({
            "word": pyarrow.chunked_array([words for words, _ in parts], "string"),
            name: pyarrow.chunked_array([numbers for _, numbers in parts], "int64"),
        }).group_by("word").aggregate([(name, how)])
        for parts, name, how in ((feed, "expected", "sum"), (counts, "told", "max"))
    ]
    both = tables[0].join(tables[1], "word", join_type="full outer", use_threads=False)
    expected, told = both.column("expected_sum"), both.column("told_max")
    kinds = {
        OK: compute.equal(expected, told), "missing": compute.is_null(told), "invented": compute.is_null(expected),
        "different": compute.not_equal(expected, told),
    }
    for kind, where in kinds.items():
        wrong = both.filter(where)
        if wrong.num_rows:
            yield Finding(WORDS, kind, wrong.num_rows, 0)
        if kind != OK and wrong.num_rows:
            first = compute.select_k_unstable(wrong, k=SHOWN, sort_keys=[("word", "ascending")])
            for row in wrong.take(first).to_pylist():
                yield Finding(WORDS, kind, word=row["word"], expected=row["expected_sum"], told=row["told_max"])
