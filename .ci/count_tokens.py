#!/usr/bin/env python3
"""Prints how many tokens of Python each folder has: `make count`. Fails if one has more than it may.

Tokens are names, numbers, operators and strings, without comments and docstrings: a size that no formatter changes and
that packing a line does not lower. A commit that raises a limit says what it made superfluous and took away.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = {
    "engine": (142_500, 110), "ipc": (23_900, 18), "scheduler": (92_800, 83), "pipeline": (50_300, 37),
    "connect": (31_100, 24), "ui": (42_300, 32), "squall": (60_100, 54), "tests": (423_800, 386),
}
"""The most tokens and files of each folder."""
_CODE = {tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING}


def tokens_of(source: str) -> int:
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return sum(
        token.type in _CODE and not prose.issuperset(range(token.start[0], token.end[0] + 1))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def main() -> int:
    sizes = {}
    for name in (*LIMITS, "examples", "benchmarks"):
        counts = [tokens_of(path.read_text(encoding="utf-8")) for path in (ROOT / name).rglob("*.py")]
        sizes[name] = sum(counts), len(counts)
        most = "of at most {:,} in {}".format(*LIMITS[name]) if name in LIMITS else ""
        print(f"{name:<12}{sizes[name][0]:>9,} tokens in {sizes[name][1]:>4} files  {most}".rstrip())
    product = [sum(column) for column in zip(*(sizes[name] for name in LIMITS if name != "tests"), strict=True)]
    print("product     {:>9,} tokens in {:>4} files".format(*product))
    exceeded = [name for name, most in LIMITS.items() if sizes[name][0] > most[0] or sizes[name][1] > most[1]]
    if exceeded:
        print(f"over the limit: {', '.join(exceeded)}", file=sys.stderr)
    return bool(exceeded)


if __name__ == "__main__":
    sys.exit(main())
