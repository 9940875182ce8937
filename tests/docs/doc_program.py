"""The programs of docs/connectors.md that need a server, run as users run them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import Page
from tests.process.cli import start


@contextlib.contextmanager
def running_program(name: str, directory: Path, documented: str, used: str) -> Iterator[None]:
    """`squall run` the program of this name, in which the address `documented` is the one that a test uses."""
    code = Page("docs/connectors.md").programs[name]
    assert documented in code
    (directory / name).write_text(code.replace(documented, used))
    running = start("run", directory / name)
    try:
        yield
    finally:
        running.terminate()
        _, said = running.communicate(timeout=100)
    assert "Traceback" not in said
