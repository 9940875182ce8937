"""The catalogue of faults in docs/faults.md is that of the code.

`python -m tests.unit.test_fault_docs` writes the catalogue into the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from squall.scheduler.faults.catalogue import CATALOGUE, Kind

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN = "<!-- The catalogue, written by `python -m tests.unit.test_fault_docs`. -->\n"
END = "<!-- The catalogue ends here. -->\n"


def catalogue() -> str:
    """Tables of every kind, a group each."""
    groups: dict[str, list[Kind]] = {}
    for kind in CATALOGUE.values():
        groups.setdefault(kind.group, []).append(kind)
    parts = []
    for group, kinds in groups.items():
        rows = [
            f"| **{group}** | what it does | example | lasts, unless `for` says otherwise; then |",
            "| --- | --- | --- | --- |",
            *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells(kind))} |" for kind in kinds),
        ]
        takes = dict.fromkeys(str(kind.acts_on) for kind in kinds)
        parts.append("\n".join([*rows, "", f"Takes: {'; or '.join(takes)}.", ""]))
    return "\n" + "\n".join(parts) + "\n"


def cells(kind: Kind) -> Iterator[str]:
    yield f"`{kind.name}`"
    yield f"{kind.meaning}{' (takes a probability)' if kind.is_drawn else ''}"
    yield f"`{kind.example}`"
    yield f"{'over at once' if kind.lasts_secs is None else f'{kind.lasts_secs:g} s'}; {kind.undo}"


def test_the_page_lists_the_catalogue() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown == catalogue(), "write it anew: python -m tests.unit.test_fault_docs"


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page.partition(BEGIN)[0] + BEGIN + catalogue() + END + page.partition(END)[2])
