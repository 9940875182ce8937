"""One term for one thing: what the glossary names is what the code says, and names that were given up stay so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ROOMS = ("engine", "ipc", "scheduler", "pipeline", "squall")
RETIRED = ("lane", "lanes", "ack_lanes", "[Zz]ygote[A-Za-z]*", "rested", "SlotPlace", "TrialTurn", "OwnTurn")
"""Patterns. A lane was the quarantine of suspects and the rings that acks take through shared memory; the forking
parent had two names; peers that have caught up are not at rest, and only Nimbus places."""


def terms() -> list[str]:
    rows = re.findall(r"^\| ([a-z][a-z, ]*) \| ", GLOSSARY.read_text(), re.MULTILINE)
    return [term for row in rows if row != "term" for term in row.split(", ")]


@cache
def texts() -> dict[Path, str]:
    """Product code and what is written about it."""
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    files += [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ipc" / "PROTOCOL.md"]
    return {path: path.read_text() for path in files}


def test_each_term_is_used_in_the_code() -> None:
    names = "\n".join(text for path, text in texts().items() if path.suffix == ".py")
    # Names in code taken apart: `AckRing` and `ack_ring` are "ack ring".
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", names).lower()
    assert len(set(terms())) == len(terms()) > 20
    assert [term for term in terms() if not re.search(rf"\b{term}", words)] == []


STRANGERS = {
    "engine/core": ("slot", "slots", "slot_index"),
    "engine/flow": ("slot", "slots", "slot_index"),
    "engine/tracking": ("slot", "slots", "slot_index"),
    "ipc/data_plane.py": ("slot", "slots", "slot_index"),
    "ipc/ack_rings.py": ("slot", "slots", "slot_index"),
}
"""Names that belong elsewhere. One index had three names: here it is a `worker`, which others see as a peer."""


@pytest.mark.parametrize("name", RETIRED)
def test_no_name_that_was_given_up_is_used(name: str) -> None:
    found = [str(path.relative_to(ROOT)) for path, text in texts().items() if re.search(rf"\b{name}\b", text)]
    assert found == []


@pytest.mark.parametrize("room", STRANGERS)
def test_no_name_of_another_room_is_used(room: str) -> None:
    pattern = rf"\b({'|'.join(STRANGERS[room])})\b"
    inside = {path: text for path, text in texts().items() if path.is_relative_to(ROOT / room)}
    assert inside, f"{room} is not there"
    assert [str(path.relative_to(ROOT)) for path, text in inside.items() if re.search(pattern, text)] == []
