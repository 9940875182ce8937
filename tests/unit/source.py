"""The files of the product, their syntax trees, and what several rules ask of them, each found out once in a process.

Relies on: nothing being imported, and no file changing while the tests run.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("engine", "ipc", "scheduler", "pipeline", "connect", "ui")
PRODUCT = (*ROOMS, "squall")


@dataclass(frozen=True)
class Source:
    path: str
    """Relative to the repository, with slashes."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.text, self.path)
        # A million nodes that stay: every collection of garbage in the process would look through them, for a second.
        gc.freeze()
        return tree

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    @property
    def folder(self) -> str:
        """Of the room, that it lies in; empty if it lies beside them."""
        return self.path.split("/")[1] if self.path.count("/") > 1 else ""

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def calls(self) -> tuple[tuple[str, ast.Call], ...]:
        """All calls, and what `name_of` says is called."""
        return tuple((name_of(node.func), node) for node in self.nodes if isinstance(node, ast.Call))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports_of(self.tree, lazy=False))

    def at(self, node: ast.AST, what: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {what}"


@dataclass(frozen=True)
class Import:
    module: str
    """Dotted; with the imported name, `from a import b` is a.b."""
    node: ast.AST
    lazy: bool
    """Inside a function, or for type checkers only: not executed when the file is imported."""

    def is_of(self, name: str) -> bool:
        return self.module == name or self.module.startswith(f"{name}.")


@cache
def sources_of(package: str) -> tuple[Source, ...]:
    """The files of a folder at the top of the repository, by path."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths)


def name_of(expression: ast.expr) -> str:
    """A name with dots, as it is written; "?" in place of what is none, as of a call's result."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{name_of(value)}.{attr}"
    return "?"


def _imports_of(node: ast.AST, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, child, lazy) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (Import(f"{module}.{alias.name}", child, lazy) for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(module, child, lazy)
        deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _is_for_types(child)
        yield from _imports_of(child, lazy or deferred)


def _is_for_types(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
    return False
