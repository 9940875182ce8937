"""The arguments of this example's programs: what is wrong with them is said in one line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn


class Arguments(argparse.ArgumentParser):
    """A parser that prints no usage with an error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def from_one(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"is {text!r}; allowed: whole numbers from 1")
    return int(text)


def whole(text: str) -> int:
    """Any whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text!r}; allowed: whole numbers") from None


def base_with(parser: Arguments, made_by: str, *folders: str) -> Path:
    """The directory that the only argument names, which must hold these folders."""
    parser.add_argument("base", type=Path)
    base: Path = parser.parse_args().base
    for folder in ("", *folders):
        if not (base / folder).is_dir():
            parser.error(f"{base / folder} is not a directory; {made_by} makes it")
    return base.resolve()
