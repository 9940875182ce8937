#!/usr/bin/env python3
"""Prints how many lines of code each folder has, without blank lines, comments and docstrings: `make count`.

Fails if the product or its tests have more than they may. Whoever adds a feature takes away what it makes superfluous;
only what is left over raises a limit, by as much, in the commit that says why.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("engine", "ipc", "scheduler", "pipeline", "connect", "ui", "squall")
OTHERS = ("tests", "examples", "benchmarks")
LIMITS = {"product": (48_700, 425), "tests": (39_500, 391)}
"""The most lines and files."""
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(text: str) -> int:
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            numbers.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(numbers)


def main() -> int:
    totals = dict.fromkeys(LIMITS, (0, 0))
    for name in (*PRODUCT, *OTHERS):
        counts = [lines_of_code(path.read_text()) for path in (ROOT / name).rglob("*.py")]
        print(f"{name:<12}{sum(counts):>8,} lines{len(counts):>6} files")
        if group := "product" if name in PRODUCT else name if name in LIMITS else "":
            lines, files = totals[group]
            totals[group] = lines + sum(counts), files + len(counts)
    failed = 0
    for group, (lines, files) in totals.items():
        most_lines, most_files = LIMITS[group]
        print(f"{group}: {lines:,} lines of at most {most_lines:,}, {files} files of at most {most_files}")
        failed |= lines > most_lines or files > most_files
    return failed


if __name__ == "__main__":
    sys.exit(main())
