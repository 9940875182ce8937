"""The text of the measurements: the interpreter's standard library, which every machine has."""

from __future__ import annotations

import functools
import sysconfig
from dataclasses import dataclass
from pathlib import Path

WORDS_PER_LINE = 8


@dataclass(frozen=True)
class Corpus:
    """A text in a file, with the numbers that a run over it must reach."""

    path: Path
    lines: int
    words: int

    @staticmethod
    def write(path: Path, lines: list[str]) -> Corpus:
        path.write_text("\n".join(lines), encoding="utf-8")
        return Corpus(path, len(lines), count_words(lines))

    @staticmethod
    def read(path: Path) -> Corpus:
        lines = read_lines(path)
        return Corpus(path, len(lines), count_words(lines))


def read_lines(path: Path | str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").split("\n")


def share_of_lines(path: Path | str, repeat: int, index: int, tasks: int) -> list[str]:
    """The lines that one of several tasks emits: every `tasks`-th from `index`, `repeat` times over."""
    return read_lines(path)[index::tasks] * repeat


@functools.cache
def eight_a_line() -> list[str]:
    """The words of the standard library's top-level packages, eight a line. Read once: a short run takes less."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "__pycache__", "test", "tests", "idle_test"}
    words: list[str] = []
    for path in sorted(root.rglob("*.py")):
        if skipped.isdisjoint(path.relative_to(root).parts):
            words += path.read_text(encoding="utf-8", errors="replace").split()
    return [" ".join(words[at : at + WORDS_PER_LINE]) for at in range(0, len(words), WORDS_PER_LINE)]


def count_words(lines: list[str]) -> int:
    return sum(len(line.split()) for line in lines)
