"""Columns that are in the names of folders: day=2026-11-22/.

Guarantees that all files have the same ones, and that none hides a column of the files: Spark reads the folder's, and
says nothing of the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

from squall.engine.errors import UsageError
from squall.pipeline.column_names import folded
from squall.pipeline.corpus import InputFile


def folder_columns(root: str, files: Sequence[InputFile]) -> list[str]:
    """Their names. UsageError if only some files have them."""
    first: list[str] = []
    for number, file in enumerate(files):
        inside = PurePosixPath(os.path.relpath(file.location, root)).parent.parts
        found = [part.partition("=")[0] for part in inside if "=" in part.strip("=")]
        first = first if number else found
        if found != first:
            raise UsageError(
                f"the folders of {root} do not agree: {file.location} is in folders of columns "
                f"({', '.join(found) or 'none'}), {files[0].location} in others ({', '.join(first) or 'none'})"
            )
    return [unquote(name) for name in first]


def check_hidden(root: str, folders: Iterable[str], names: Iterable[str]) -> None:
    """UsageError if a folder has the name of a column of the files."""
    there = {folded(name): name for name in names}
    for folder in folders:
        if (hidden := there.get(folded(folder))) is not None:
            raise UsageError(
                f"{root} has folders of a column {folder!r}, which would hide column {hidden!r} of the files in them; "
                "allowed: another name of the folders, or a --schema without the column"
            )
