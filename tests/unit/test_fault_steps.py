"""The table of steps at which processes can be killed is that of the code, and no durable write is without one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest

from squall.scheduler.common.fault_points import POINTS, STEPS
from tests.unit.source import name_of, sources_of

ROOMS = ("engine", "ipc", "scheduler", "squall")
PASSES = ("pass_point", "tear")
DURABLE_CALLS = ("os.fsync", "os.fdatasync", "os.rename", "os.replace", "sync_directory")
DURABLE_METHODS = ("rename",)
"""Of paths."""
HELD = ("ipc/line_file.py", "ipc/board.py", "scheduler/nimbus", "scheduler/records", "scheduler/supervisor",
        "scheduler/breaking", "scheduler/common")  # fmt: skip
WITHOUT = {
    "scheduler/nimbus/store_repair.py": "an operator's command, with no cluster running; it keeps a copy first",
}


def names_passed(calls: Iterable[tuple[str, ast.Call]]) -> list[str]:
    """The names of all points that these calls pass; "?" for one that is not written out."""
    found = []
    for called, node in calls:
        if called in PASSES:
            name = node.args[0]
            found.append(name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else "?")
    return found


def calls_in(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(name_of(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def unguarded(tree: ast.AST) -> list[int]:
    """Lines of the durable writes without a point near before or just after them. (`append_line` has its own.)"""
    return [line for body in bodies(tree) for line in unguarded_in(body)]


def bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                yield statements


def unguarded_in(body: list[ast.stmt]) -> Iterator[int]:
    """Of the statements of one block, without those of blocks inside."""
    for at, statement in enumerate(body):
        if is_durable(statement):
            beside = [near for near in (at - 3, at - 2, at - 1, at + 1) if 0 <= near < len(body)]
            if not any(names_passed(calls_in(body[near])) for near in beside):
                yield statement.lineno


def is_durable(statement: ast.stmt) -> bool:
    if hasattr(statement, "body"):
        return False
    for called, node in calls_in(statement):
        commits = any(isinstance(arg, ast.Constant) and arg.value == "COMMIT" for arg in node.args)
        if called in DURABLE_CALLS or commits or called.rpartition(".")[2] in DURABLE_METHODS:
            return True
    return False


def test_the_table_is_that_of_the_code() -> None:
    found = [name for room in ROOMS for source in sources_of(room) for name in names_passed(source.calls)]
    assert sorted(found) == sorted(STEPS), "each point of the code is in STEPS, and each of STEPS is in the code once"
    assert not POINTS.keys() & STEPS.keys()



@pytest.mark.parametrize("held", HELD)
def test_no_durable_write_is_without_a_point(held: str) -> None:
    found = [
        f"{source.path}:{line}"
        for source in sources_of(held.partition("/")[0])
        if source.path.startswith(held) and source.path not in WITHOUT
        for line in unguarded(source.tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "write",
    [
        "os.fsync(fd)", "os.replace(one, two)", "os.rename(one, two)", "path.rename(other)", 'db.execute("COMMIT")',
        "sync_directory(path)", "return path.rename(other)",
    ],
)  # fmt: skip
def test_a_write_without_a_point_is_found(write: str) -> None:
    before = "def save():\n    try:\n        prepare()\n"
    after = "    except OSError:\n        pass_point('far.away')\n"
    assert unguarded(ast.parse(f"{before}        {write}\n{after}")) == [4]
    for near in ("pass_point('x.y')\n        {}", "{}\n        pass_point('x.y')", "tear('x.y', fd, data)\n        {}"):
        text = before + "        " + near.format(write) + "\n" + after
        if not write.startswith("return") or near.endswith("{}"):
            assert unguarded(ast.parse(text)) == []
