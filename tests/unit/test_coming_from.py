"""docs/coming-from.md names only what there is."""

from __future__ import annotations

import re
from pathlib import Path

import squall
from squall import Config, testing
from squall.cli.commands import COMMANDS
from squall.engine.api.config import canonical_name

PAGE = (Path(__file__).resolve().parents[2] / "docs/coming-from.md").read_text()
OURS = [line.split(" | ")[-1] for line in PAGE.splitlines() if line.startswith("| ")]
"""The right column of every table."""
SPANS = [span for cell in OURS for span in re.findall(r"`([^`]+)`", cell)]
OF_PYTHON = {"print", "yield", "raise", "None", "tup"}


def known_names() -> set[str]:
    """Public names, and the public members of public classes."""
    public = {name: getattr(package, name) for package in (squall, testing) for name in package.__all__}
    return {*public, *(member for thing in public.values() if isinstance(thing, type) for member in dir(thing))}


def test_commands_are_there() -> None:
    commands = re.findall(r"`squall ([a-z-]+)", PAGE)
    assert len(commands) > 20
    assert set(commands) <= set(COMMANDS)


def test_names_are_there() -> None:
    known = known_names() | OF_PYTHON | set(vars(Config()))
    named = [match[1] for span in SPANS if (match := re.match(r"@?(?:(?:collector|context|tup)\.)?([A-Za-z_]+)", span))]
    named = [name for name in named if name != "squall"]
    assert len(named) > 40
    assert sorted({name for name in named if name not in known and canonical_name(name) is None}) == []


def test_keys_of_storm_are_accepted() -> None:
    assert canonical_name("topology.max.spout.pending") == "max_spout_pending"
