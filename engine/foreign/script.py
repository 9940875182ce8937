"""Finds the code of a user's file that is named on the command line, such as one with a topology.

Guarantees: what stands in the file now is what is executed, as with `python FILE`. Python's own imports may take a
cached compilation of an earlier version: if the file changed within a second, and kept its size.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class _FromSource(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def spec_of_script(name: str, path: Path) -> ModuleSpec | None:
    """How to import a file under a name; None if it is no Python source (.py)."""
    if path.suffix != ".py":
        return None
    return spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
