"""What a command says: every line that it prints goes through here, or through `squall.cli.plain_console`.

Guarantees: nothing that is printed holds a control character but line feeds and tabs. A text that is not ours and is to
stay on its line has been through `engine.foreign.plain_text.plain` before: line feeds cannot be told apart here.

What users' code prints in this process (a topology file as `squall run` imports it, components with `--local`) does not
go through here: it is theirs, and goes where they send it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from squall.engine.foreign.plain_text import plain_lines
from squall.engine.report.strict_json import strict_json


def say(text: str) -> None:
    """On stdout."""
    sys.stdout.write(plain_lines(text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """On stderr."""
    sys.stderr.write(plain_lines(text) + "\n")
    sys.stderr.flush()


def say_json(document: Any, *, sort_keys: bool = False, out: TextIO | None = None) -> None:
    """A document on stdout (or `out`), in full and in ASCII: what it holds is escaped by JSON's own means."""
    # JSON leaves this one control character as it is.
    text = strict_json(document, sort_keys=sort_keys).replace("\x7f", "\\u007f")
    out = out or sys.stdout
    out.write(text + "\n")
    out.flush()


def reserve_stdout() -> TextIO:
    """Stdout, for one document alone: whatever else this process and its children write there goes to stderr.

    For the rest of the process, because users' code may print to its very end: from a thread, or at exit. Where a
    program has put something else in place of `sys.stdout`, stdout is that program's, and left alone.
    """
    if sys.__stdout__ is None or sys.stdout is not sys.__stdout__:
        return sys.stdout
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2 if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), 1)
    return own
