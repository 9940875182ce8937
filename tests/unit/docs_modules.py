"""The files that pages of the documentation show, imported as a reader would."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import Page


@contextmanager
def modules_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[dict[str, ModuleType]]:
    """Those of these pages, each of whose blocks in Python is a file."""
    files = []
    for page in map(Page, names):
        assert len(page.of("python")) == len(page.programs)
        page.save(folder)
        files += [name.removesuffix(".py") for name in page.programs]
    monkeypatch.syspath_prepend(folder)
    yield {file: importlib.import_module(file) for file in files}
    for file in files:
        del sys.modules[file]
