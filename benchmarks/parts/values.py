"""Big values between two workers, beside a plain copy of memory."""

from __future__ import annotations

from benchmarks.effort import Effort
from benchmarks.payloads import QUICK_CASES, QUICK_SIZES, table
from benchmarks.results import Part
from benchmarks.rounds import say


def measure(effort: Effort) -> Part:
    sizes, cases = (QUICK_SIZES[-1:], QUICK_CASES[:2]) if effort.quick else (QUICK_SIZES, QUICK_CASES)
    header, _, *rows = table(sizes, list(cases), effort.value_secs)
    for row in rows:
        say(row)
    return Part(
        title="Big values",
        about="GB/s of acked values from one worker to another, and the share of a plain copy; one run of "
        f"{effort.value_secs:g} s each, more by\n`python -m benchmarks.payloads`.",
        header=_cells(header),
        rows=[_cells(row) for row in rows],
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
