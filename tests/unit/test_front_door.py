"""Tests see what a user or another part sees: they read no private attribute of the product, and build no object
without its `__init__`.

Guarantees: each place that does is reported as file:line, by the name's spelling alone: an attribute of another object
whose name begins with one underscore and is defined in the product, also where the name is given as text or imported.
A subclass may use what it inherits (mutants of the proof are such).

Relies on: the files alone; nothing is imported. The rule is itself tested on violations planted below.
"""

from __future__ import annotations

import ast
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
    """Not names such as `__init__` and `_repr_html_`, by which others call what a class defines for them."""
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


def private_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of each private attribute, or private name of another module, that a file uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if is_private(name):
                yield node.lineno, name
            case ast.ImportFrom(module=str(module), names=taken):
                yield from ((node.lineno, name) for name in (*module.split("."), *(one.name for one in taken))
                            if is_private(name))
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=args):
                if function in TAKE_NAMES_AS_TEXT:
                    yield from (
                        (node.lineno, arg.value) for arg in args
                        if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and is_private(arg.value)
                    )


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


def test_examples_use_no_private_name() -> None:
    """Not even names of their own: a reader cannot tell them from the product's."""
    wrong = [
        f"{source.path}:{line}: uses {name}"
        for source in sources_of("examples")
        for line, name in private_uses(source.tree)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    ["self._kept = 1", "spout._kept", "from squall import _x", "from squall._x import y", "getattr(spout, '_kept')"],
)
def test_private_name_in_an_example_is_reported(text: str) -> None:
    assert [line for line, _ in private_uses(ast.parse(text))] == [1]


@pytest.mark.parametrize("text", ["def _own(): ...\n_own()", "_", "self.__init__", "row._replace(a=1)", "print('_a')"])
def test_what_an_example_may_use_passes(text: str) -> None:
    assert list(private_uses(ast.parse(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "assert door._welcome == 1",
        "lab.spout._due.clear()",
        "reader._mappings[1] = other",
        "Worker.__new__(Worker)",
        "object.__new__(Worker)",
        "monkeypatch.setattr(door, '_welcome', 1)",
        "monkeypatch.setattr('squall.ipc.link._welcome', 1)",
        "getattr(door, '_welcome')",
        "from squall.ipc.link import _count",
        "import squall.ipc.link\nsquall.ipc.link._count()",
    ],
)
def test_planted_violation_is_reported(text: str) -> None:
    names = frozenset({"_welcome", "_due", "_mappings", "_count"})
    assert len(list(reads(ast.parse(text), names))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "self._due = 1",
        "super()._due()",
        "super().__new__(cls)",
        "case._own = 1",
        "import os\nos._exit(1)",
        "setattr(door, 'welcome', 1)",
        "print('_due')",
        "record._replace(pid=1)",
    ],
)
def test_what_is_allowed_passes(text: str) -> None:
    assert list(reads(ast.parse(text), frozenset({"_due", "_exit"}))) == []


def test_names_of_slots_and_functions_count() -> None:
    text = "_A = 1\nclass B:\n    __slots__ = ('_c', 'd')\n    def _e(self):\n        self._f = 1\n"
    assert {name for name in defined(Source.parse("x.py", text)) if is_private(name)} == {"_A", "_c", "_e", "_f"}
