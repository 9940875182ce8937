"""Prints the commands' output: every line goes through here, or through `squall.cli.screen`.

Guarantees: each text printed is one line, in which control characters and other dangers of foreign text are visible as
escapes (`engine.foreign.text`): whoever makes a text need not see to that. JSON is ASCII, and escapes by itself.

Output of users' code in this process (a topology file imported by `squall run`, components with `--local`) does not go
through here: it goes where they send it.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from squall.engine.foreign.text import plain
from squall.ipc.private import naming

if TYPE_CHECKING:
    from squall.engine.report.run_report import RunReport

EXIT_OK, EXIT_FAILURE, EXIT_DEAD_LETTERS, EXIT_UNPROCESSED = 0, 1, 3, 4


def say(*lines: object) -> None:
    """Print lines on stdout, if there is one. An error names it."""
    if sys.stdout is not None:
        with naming("stdout"):
            _write(sys.stdout, lines)


def note(*lines: object) -> None:
    """Print lines on stderr, if it can be written: the exit code is all that tells otherwise, and must stay right."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            _write(sys.stderr, lines)


def _write(stream: TextIO, lines: tuple[object, ...]) -> None:
    stream.write("".join(f"{plain(line, keep=TAB)}\n" for line in lines))
    stream.flush()


TAB = "\t"


def say_json(document: Any, *, out: TextIO | None = None) -> None:
    """Print a document on stdout (or `out`), complete and in ASCII: JSON itself escapes its texts."""
    # Imported here: msgspec, which describes documents, takes as long as all else of `squall --help`.
    from squall.engine.report.document import strict_json

    # JSON leaves this one control character unescaped.
    text = strict_json(document).replace("\x7f", "\\u007f")
    out = out or sys.stdout
    if out is not None:
        with naming("stdout"):
            out.write(text + "\n")
            out.flush()


def reserve_stdout() -> TextIO:
    """Reserve stdout for one document: all other output of this process and its children there goes to stderr.

    It stays reserved until the process ends, because users' code may print until then: from a thread, or at exit. If
    a program has replaced `sys.stdout`, stdout is that program's and left alone.
    """
    if sys.__stdout__ is None or sys.stdout is not sys.__stdout__:
        return sys.stdout
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2 if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), 1)
    return own


def reader_has_gone() -> bool:
    """Return True if stdout is a pipe that nobody reads any more."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    try:
        poll.register(sys.stdout, 0)
    except (OSError, ValueError):
        # A program has replaced it by something that is no file.
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


@contextlib.contextmanager
def closed_pipe_is_no_error(out: TextIO | None = None) -> Iterator[None]:
    """Print inside on stdout, or `out`; if nobody reads it (`| head`), the rest is dropped."""
    try:
        yield
    except BrokenPipeError:
        # The interpreter's flush at exit would fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (out or sys.stdout).fileno())


def exit_code(report: RunReport, fail_on_late: bool = False) -> int:
    """1 if messages failed and were not emitted again, a task raised at its end, or late tuples were dropped and shall
    not be; 3 with dead letters; 4 if messages were left unanswered, or tuples without a tree are not known to be
    processed; else 0."""
    if report.unreplayed or report.close_errors or (fail_on_late and report.late_dropped):
        return EXIT_FAILURE
    if report.dead_letters:
        return EXIT_DEAD_LETTERS
    left = report.unanswered + report.untracked.unprocessed + report.untracked.unknown
    return EXIT_UNPROCESSED if left else EXIT_OK


class Stages:
    """Prints one line on stderr per stage, with the seconds since the start: stdout is for the outcome."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def elapsed_secs(self) -> float:
        return time.monotonic() - self._started

    def __call__(self, line: str) -> None:
        note(f"[{self.elapsed_secs:5.1f} s] {line}")
