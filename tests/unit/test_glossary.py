"""One term for one thing: what the glossary names is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ROOMS = ("engine", "ipc", "scheduler", "pipeline", "squall")


def terms() -> list[str]:
    rows = re.findall(r"^\| ([a-z][a-z, ]*) \| ", GLOSSARY.read_text(), re.MULTILINE)
    return [term for row in rows if row != "term" for term in row.split(", ")]


def test_each_term_is_used_in_the_code() -> None:
    names = "\n".join(path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    # Names in code taken apart: `AckRing` and `ack_ring` are "ack ring".
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", names).lower()
    assert len(set(terms())) == len(terms()) > 15
    assert [term for term in terms() if not re.search(rf"\b{term}", words)] == []
