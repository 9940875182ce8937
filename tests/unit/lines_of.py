"""The lines of a file, one by one, as the tests of what reads lines in chunks want them."""

from __future__ import annotations

from squall.pipeline.read.input_files import InputFile
from squall.pipeline.read.lines import Line, read_chunks


def read_file(file: InputFile) -> list[Line]:
    """All lines of a file in order, the refused ones too."""
    found: list[Line] = []
    for chunk in read_chunks(file):
        texts = [Line(line_no, text) for line_no, text in zip(chunk.line_nos, chunk.texts, strict=True)]
        found += sorted([*texts, *chunk.refused], key=lambda line: line.line_no)
    return found
