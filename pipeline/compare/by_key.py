"""Compares any two results by key, with Spark: `squall verify LEFT RIGHT --by KEY`.

Guarantees that every key of both sides is compared and falls under one kind, and that no more than the counts and the
first few differences of each kind leave Spark, whatever the size of the sides.

::

    LEFT  ── rows by key: number, values ──┐
                                           ├─ full outer join ─► kind ─┬─► counts
    RIGHT ── rows by key: number, values ──┘                           └─► first examples

Keys and values are equal as Spark's `<=>` has it: null equals null, NaN equals NaN, 0.0 equals -0.0; numbers may also
differ within a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.compare.request import Comparison, Request
from squall.pipeline.compare.sides import Side, find_side, read_sides
from squall.pipeline.session import spark_session
from squall.pipeline.spark_errors import data_errors

#: Called with one line about the present step.
Progress = Callable[[str], None]


def compare(left: Path, right: Path, request: Request, *, progress: Progress = lambda line: None) -> Comparison:
    """Compare `right` with `left`, which has what is expected. What is wrong on disk is refused before Java starts."""
    sides = find_side(left), find_side(right)
    progress(f"{sides[0].kind} and {sides[1].kind}, starting Spark")
    with (
        spark_session("squall verify") as spark,
        data_errors(lambda trouble: f"{left} and {right} cannot be compared: {trouble}"),
    ):
        from squall.pipeline.compare.join import Join

        progress("reading both sides")
        frames = read_sides(spark, sides)
        request = _complete(request, sides, (frames[0].columns, frames[1].columns))
        join = Join(frames, request)
        progress("comparing every key")
        outcome = join.count(sides)
        if outcome.passed or not request.examples:
            return outcome
        progress("looking for examples of differences")
        return replace(outcome, examples=tuple(join.examples()))


def _complete(request: Request, sides: tuple[Side, Side], columns: tuple[list[str], list[str]]) -> Request:
    """The request with the columns to compare. UsageError if it names one that is not there."""
    def check(names: tuple[str, ...]) -> None:
        for side, there in zip(sides, columns, strict=True):
            for name in names:
                if there.count(name) != 1:
                    raise UsageError(f"{side.path} has no column {repr_of(name)}; it has {', '.join(there) or 'none'}")

    check((*request.by, *(request.compare or ())))
    chosen = request.compare
    if chosen is None:
        left, right = ([name for name in there if name not in (*request.by, request.last)] for there in columns)
        chosen = tuple(left)
        for lacking in sorted(set(left) ^ set(right)):
            raise UsageError(
                f"{sides[lacking in left].path} has no column {lacking!r}, which the other side has; name the columns "
                "to compare with --compare, or use --keys-only"
            )
        check(chosen)
    if request.last is not None and request.last not in (*columns[0], *columns[1]):
        raise UsageError(f"--last is {repr_of(request.last)}, a column of neither side")
    for name in request.tolerances:
        if name and name not in chosen:
            raise UsageError(f"--tolerance is for column {name!r}, which is not compared")
    return replace(request, compare=chosen)
