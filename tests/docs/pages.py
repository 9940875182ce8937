"""What pages of the documentation show, for tests that do it."""

from __future__ import annotations

import re
from pathlib import Path

import click

from squall.cli.commands import cli
from tests.process.cli import ROOT


def understood(name: str, *words: str) -> click.Context:
    """What a command of Squall makes of its arguments."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command.make_context(name, [*words])


class Page:
    """One page, or a section of it."""

    def __init__(self, name: str, section: str = "") -> None:
        """`name`: its path in the repository."""
        self.text = (ROOT / name).read_text()
        if section:
            [self.text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", self.text, re.DOTALL | re.MULTILINE)
        self.blocks: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        """Language and text of each."""

    def of(self, language: str) -> list[str]:
        """The blocks in one language."""
        return [text for found, text in self.blocks if found == language]

    @property
    def commands(self) -> list[str]:
        """The lines of the blocks in no language, without the `squall` that they begin with."""
        lines = [line for text in self.of("") for line in text.splitlines()]
        return [line.removeprefix("squall ") for line in lines if line.startswith("squall ")]

    @property
    def programs(self) -> dict[str, str]:
        """The blocks in Python that say in which file they are, by its name."""
        found = (re.match(r"# (\S+\.py)\b.*\n", text) for text in self.of("python"))
        return {match[1]: match.string[match.end() :] for match in found if match}

    def save(self, folder: Path) -> None:
        """Write the programs."""
        for name, text in self.programs.items():
            assert not (folder / name).exists()
            (folder / name).write_text(text)
