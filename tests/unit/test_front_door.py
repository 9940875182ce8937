"""Tests see what a user or another part sees: they read no private attribute of the product, and build no object
without its `__init__`.

Guarantees: each place that does is reported as file:line, by the name's spelling alone: an attribute of another object
whose name begins with one underscore and is defined in the product, also where the name is given as text or imported.
A subclass may use what it inherits (mutants of the proof are such).

Relies on: the files alone; nothing is imported. The rule is itself tested on violations planted below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.source import PRODUCT, ROOT, Source, sources_of

ALLOWED = {
    ("tests/held.py", "_run"): "the run of a tuple: users hold tuples, so what acks go by has no public name",
    ("tests/leaks.py", "_target"): "of `threading.Thread`: nothing else tells whose a thread is",
}
"""(file, name): why it has to be."""
OF_NAMED_TUPLES = frozenset({"_asdict", "_fields", "_make", "_replace"})
TAKE_NAMES_AS_TEXT = frozenset({"attrgetter", "delattr", "getattr", "hasattr", "object", "patch", "setattr"})


def is_private(name: str) -> bool:
    """Not names such as `__init__` and `__len__`, by which others call what a class defines for them."""
    if not name.startswith("_") or name.startswith("__") or name.endswith("_"):
        return False
    return name.isidentifier() and name not in OF_NAMED_TUPLES


def defined(source: Source) -> Iterator[str]:
    """The private names that a file of the product gives to anything."""
    for node in source.nodes:
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                yield from (slot.value for slot in ast.walk(value) if isinstance(slot, ast.Constant))


def reads(tree: ast.Module, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of each private name that a test takes of the product; `__new__` where `__init__` is left out."""
    others = {
        alias.asname or alias.name
        for node in ast.walk(tree) if isinstance(node, ast.Import)
        for alias in node.names if not alias.name.startswith("squall.")
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr="__new__"):
                yield node.lineno, "__new__"
            case ast.Attribute(value=value, attr=name) if name in names:
                if not (isinstance(value, ast.Name) and value.id in others):
                    yield node.lineno, name
            case ast.ImportFrom(module=str(module), names=taken) if module.startswith("squall"):
                yield from ((node.lineno, alias.name) for alias in taken if is_private(alias.name))
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=args):
                if function in TAKE_NAMES_AS_TEXT:
                    texts = [arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                    yield from ((node.lineno, last) for text in texts if (last := text.rpartition(".")[2]) in names)


@pytest.fixture(scope="module")
def private() -> frozenset[str]:
    sources = (source for package in PRODUCT for source in sources_of(package))
    return frozenset(name for source in sources for name in defined(source) if is_private(name))


def test_tests_come_in_by_the_front_door(private: frozenset[str]) -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), line, name)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in reads(ast.parse(path.read_text()), private)
    ]
    wrong = [f"{path}:{line}: takes {name}" for path, line, name in found if (path, name) not in ALLOWED]
    assert not wrong, "assert what a user or another part can see:\n" + "\n".join(wrong)
    # By the text: whether the name is the product's too may change from day to day.
    gone = [entry for entry in ALLOWED if entry[1] not in (ROOT / entry[0]).read_text()]
    assert not gone, f"remove from ALLOWED what needs it no more: {gone}"


USED = re.compile(r"(?:\.|import |, [\"'])(_\w+)")


def test_examples_use_no_private_name() -> None:
    """Not even names of their own: a reader cannot tell them from the product's."""
    texts = {source.path: source.text for source in sources_of("examples")}
    wrong = [(path, name) for path, text in texts.items() for name in USED.findall(text) if is_private(name)]
    assert not wrong
