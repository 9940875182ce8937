"""Tests see what a user or another part sees: they read no private attribute of the product, and build no object
without its `__init__`.

Guarantees: each place that does is reported as file:line, by the name's spelling alone: an attribute of another object
whose name begins with one underscore and is defined in the product, also where the name is given as text or imported.
A subclass may use what it inherits (mutants of the proof are such).

Relies on: the files alone; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.source import PRODUCT, ROOT, Source, name_of, sources_of

pytestmark = pytest.mark.xdist_group("sources")  # parsed once
ALLOWED = {
    ("tests/leaks.py", "_target"): "of `threading.Thread`: nothing else tells whose a thread is",
}
"""(file, name): why it has to be."""
AS_TEXT = re.compile(r"(?:attrgetter|[gs]etattr|delattr|hasattr|object|patch)\([^()\n]*[\"'](?:[\w.]*\.)?(_\w+)[\"']")
DEFINED = re.compile(r"(?:self\.|cls\.|def |class |^ *)(_\w+)\b(?=[^=\n]*[=:(])", re.MULTILINE)
OF_NAMED_TUPLES = frozenset({"_asdict", "_fields", "_make", "_replace"})


def is_private(name: str) -> bool:
    """Not names such as `__init__` and `__len__`, by which others call what a class defines for them."""
    if not name.startswith("_") or name.startswith("__") or name.endswith("_"):
        return False
    return name.isidentifier() and name not in OF_NAMED_TUPLES


def reads(source: Source, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of each private name that a test takes of the product; `__new__` where `__init__` is left out."""
    modules = {found.module for found in source.imports if not found.module.startswith("squall.")}
    for node in source.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=name) if name == "__new__" or name in names:
                if name_of(node.value) not in modules:
                    yield node.lineno, name
    for number, line in enumerate(source.text.splitlines(), 1):
        yield from ((number, name) for name in AS_TEXT.findall(line) if name in names)
    for found in source.imports:
        if found.module.startswith("squall") and is_private(name := found.module.rpartition(".")[2]):
            yield found.node.lineno, name


@pytest.fixture(scope="module")
def private() -> frozenset[str]:
    texts = (source.text for package in PRODUCT for source in sources_of(package))
    return frozenset(name for text in texts for name in DEFINED.findall(text) if is_private(name))


def test_tests_come_in_by_the_front_door(private: frozenset[str]) -> None:
    found = [(source.path, line, name) for source in sources_of("tests") for line, name in reads(source, private)]
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
