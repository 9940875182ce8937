"""The rules of the house that no general linter knows, read off the syntax tree of every product file.

Guarantees: who may import whom, where PySpark and the wall clock may appear, that no error is swallowed whole, and how
long a file and a function may get. Each violation is reported as file:line with the rule it breaks.

Relies on: the files alone; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.unit.source import PRODUCT, ROOMS, ROOT, Import, Source, sources_of

pytestmark = pytest.mark.xdist_group("sources")  # parsed once
OURS = frozenset((*PRODUCT, "examples", "benchmarks", "tests"))

# Which of our rooms each may import besides itself.
MAY_IMPORT = {
    "engine": frozenset[str](),
    "ipc": frozenset({"engine"}),
    "scheduler": frozenset({"engine", "ipc"}),
    "pipeline": frozenset({"engine"}),
    "connect": frozenset({"engine"}),
    "ui": frozenset({"engine", "ipc", "scheduler"}),
    "squall": frozenset({"engine", "ipc", "scheduler", "pipeline", "connect", "ui"}),
    # What a user has.
    "examples": frozenset({"connect", "squall"}),
}
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def folders_of(room: str) -> dict[str, frozenset[str]]:
    """Inside a room, which of its folders each may import besides itself, as the page's table says; the last row comes
    first, and every arrow points back, so there is no circle."""
    table = PAGE.partition(f"### Inside `{room}/`")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.*?) ?\|$", table, re.MULTILINE)
    return {folder: frozenset(re.findall(r"`(\w+)`", may)) for folder, may in reversed(rows)}


# What lies beside the folders ("") may be imported by all of them.
FOLDERS_MAY_IMPORT = {"engine": {"": frozenset[str](), **folders_of("engine")}, "scheduler": folders_of("scheduler")}
# Decisions only: no socket and no process inside the engine.
ENGINE_NEVER = frozenset({"zmq", "socket", "multiprocessing", "subprocess"})

WALL_CLOCKS = re.compile(r"time\.time(_ns)?|datetime\.(datetime\.(now|utcnow|today)|date\.today)")
# Deadlines come from a monotonic clock, or a clock that jumps would fail tuples. Times that only people read may not.
WALL_CLOCK_ALLOWED = {
    "engine/clock.py": "where a time that outlives the machine begins",
    "scheduler/worker/own_faults.py": "a fault sets it",
    "squall/cli/steering/topologies.py": "how old files are",
    "scheduler/worker/worker_metrics.py": "when an interval ended, for users' programs",
    "ui/sampler.py": "when a look was made, for charts",
    "ui/otlp.py": "when a value was measured, for its receiver",
    "scheduler/records/dead_letters.py": "when a message was given up, for people",
    "scheduler/common/daemon.py": "when a daemon died, for people",
    "scheduler/client/standing.py": "how long ago a topology was submitted, for people",
    "scheduler/nimbus/service.py": "when a topology was submitted, for its record",
}

# What a worker imports for a FeedSpout, a TailSpout or a ParquetSink.
READS_FEEDS = frozenset(
    f"pipeline/{name}.py"
    for name in (
        "feed/__init__", "feed/feed_spout", "feed/manifest", "feed/part_reader", "feed/shares",
        "feed/sources", "parquet_sink", "sink_table", "log_reader", "tail_spout",
    )
)

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70


def room_of(found: Import) -> str:
    """The folder that holds it: of `squall.engine.flow.ids` that is `engine`; empty if it is none of ours."""
    first, _, rest = found.module.partition(".")
    second = rest.partition(".")[0]
    return second if first == "squall" and second in ROOMS else first if first in OURS else ""


def folder_of(found: Import) -> str:
    """The folder of the room: of `squall.engine.flow.ids` that is `flow`; empty if the module lies beside them."""
    name = found.module.removeprefix("squall.").split(".")[1:2]
    return name[0] if name and name[0] in FOLDERS_MAY_IMPORT.get(room_of(found), {}) else ""


def layering(source: Source) -> Iterator[str]:
    """Who may import whom."""
    allowed = MAY_IMPORT[source.package] | {source.package}
    for found in source.imports:
        top, room = found.module.partition(".")[0], room_of(found)
        if top in ROOMS:
            yield source.at(found.node, f"imports {found.module}; what is installed is squall.{found.module}")
        elif room and room not in allowed and not any(found.is_of(f"squall.{name}") for name in allowed):
            may = ", ".join(sorted(MAY_IMPORT[source.package])) or "nothing of ours"
            yield source.at(found.node, f"imports {found.module}; {source.package} may import {may}")
        if source.package == "engine" and top in ENGINE_NEVER:
            yield source.at(found.node, f"imports {top}; the engine holds no socket and no process")


def one_way(source: Source) -> Iterator[str]:
    """Inside a room, who may import whom."""
    folders = FOLDERS_MAY_IMPORT.get(source.package)
    if folders is None or source.path == f"{source.package}/__init__.py":
        return
    if source.folder not in folders:
        yield f"{source.path}:1: lies in no folder of {source.package}; there are {', '.join(filter(None, folders))}"
        return
    allowed = {source.folder, "", *folders[source.folder]}
    for found in source.imports:
        if room_of(found) == source.package and folder_of(found) not in allowed:
            may = ", ".join(sorted(folders[source.folder])) or "no other folder"
            yield source.at(found.node, f"imports {found.module}; {source.folder or 'what lies here'} may import {may}")


def spark_only_in_pipeline(source: Source) -> Iterator[str]:
    """Everything but the pipeline works without Java and PySpark, and starts without waiting for them."""
    for found in source.imports:
        if found.is_of("pyspark") and source.package not in ("pipeline", "examples"):
            yield source.at(found.node, f"imports {found.module}; only pipeline and users' programs import PySpark")
        if (found.is_of("pyspark") or found.is_of("pyarrow")) and source.path in READS_FEEDS and not found.lazy:
            yield source.at(found.node, f"imports {found.module}; topologies read feeds without Spark, and text alone")
        if room_of(found) == "pipeline" and source.package == "squall" and not found.lazy:
            yield source.at(found.node, "imports pipeline outside a function; Spark commands import it when called")


def monotonic_clock_only(source: Source) -> Iterator[str]:
    """Used or handed on, under whatever name it was imported."""
    if source.path in WALL_CLOCK_ALLOWED:
        return
    yield from (source.at(node, f"uses {name}; deadlines come from a monotonic clock") for node, name in clocks(source))


def clocks(source: Source) -> Iterator[tuple[ast.AST, str]]:
    names: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and WALL_CLOCKS.fullmatch(name := dotted(node, names)):
            yield node, name


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value, names)}.{attr}"
    return ""


def no_swallowed_errors(source: Source) -> Iterator[str]:
    """Whoever catches everything must do something about it."""
    for node in source.nodes:
        match node:
            case ast.ExceptHandler(type=caught, body=body) if catches_all(caught) and all(map(does_nothing, body)):
                yield source.at(node, "swallows every error; name the one that is expected, or handle it")
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args) if any(
                map(catches_all, args)
            ):
                yield source.at(node, "suppresses every error; name the one that is expected")


def texts_in_utf_8(source: Source) -> Iterator[str]:
    for node in source.nodes if source.package != "examples" else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="read_text" | "write_text" as name), args=args, keywords=[]) if len(
                args
            ) == (name == "write_text"):
                yield source.at(node, f"{name} takes the locale's encoding; name one, or use bytes")


def catches_all(caught: ast.expr | None) -> bool:
    match caught:
        case None | ast.Name(id="Exception" | "BaseException"):
            return True
        case ast.Tuple(elts=several):
            return any(map(catches_all, several))
    return False


def does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def short_enough(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{source.path}:1: has {lines} lines; {MAX_FILE_LINES} at most"
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield source.at(node, f"{node.name} has {length} lines; {MAX_FUNCTION_LINES} at most")


Rule = Callable[[Source], Iterator[str]]
RULES: tuple[Rule, ...] = (
    layering, one_way, spark_only_in_pipeline, monotonic_clock_only, no_swallowed_errors, short_enough, texts_in_utf_8,
)


@pytest.fixture
def sources() -> list[Source]:
    return [source for package in MAY_IMPORT for source in sources_of(package)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_product_keeps_the_rule(rule: Rule, sources: list[Source]) -> None:
    violations = [line for source in sources for line in rule(source)]
    assert not violations, "\n" + "\n".join(violations)


def test_every_product_package_was_read(sources: list[Source]) -> None:
    assert {source.package for source in sources} >= set(PRODUCT)


@pytest.mark.parametrize("room", FOLDERS_MAY_IMPORT)
def test_folders_have_no_circle(room: str) -> None:
    before: set[str] = set()
    for folder, may in FOLDERS_MAY_IMPORT[room].items():
        assert may <= before, f"{room}/{folder} may import {sorted(may - before)}, which stand below it in the list"
        before.add(folder)


@pytest.mark.parametrize("room", FOLDERS_MAY_IMPORT)
def test_a_folder_may_import_only_what_it_does(room: str, sources: list[Source]) -> None:
    used: dict[str, set[str]] = {folder: set() for folder in FOLDERS_MAY_IMPORT[room]}
    for source in sources:
        if source.package == room and source.folder in used:
            used[source.folder] |= {folder_of(found) for found in source.imports if room_of(found) == room}
    for folder, may in FOLDERS_MAY_IMPORT[room].items():
        assert used[folder] - {folder, ""} == may, f"{room}/{folder}: the list and the code differ"


def test_wall_clock_is_allowed_only_where_it_is_used(sources: list[Source]) -> None:
    used = {source.path for source in sources if any(clocks(source))}
    assert WALL_CLOCK_ALLOWED.keys() <= used, "remove from WALL_CLOCK_ALLOWED what needs it no more"


MAY_SIGNAL_BY_NUMBER = {
    "connect/multilang/shell_process.py": "the group of its own child, which nobody else reaps",
    "scheduler/common/process.py": "a group, right after its leader's pidfd spoke, or has been proven",
    "scheduler/forking/child.py": "its own child, which nobody else reaps",
    "squall/cli/load_child.py": "the group of its own child, which nobody else reaps",
}


def test_nobody_else_signals_by_number(sources: list[Source]) -> None:
    signal = {"os.kill", "os.killpg"}
    senders = {source.path for source in sources if any(called in signal for called, _ in source.calls)}
    assert senders == MAY_SIGNAL_BY_NUMBER.keys()


IMPLEMENTED = {"BasicCollector", "BatchCollector", "BoltCollector", "SpoutCollector"}
"""What users are shown in `engine/api` and what does it in `engine/flow` are one thing."""


def test_a_class_name_stands_for_one_thing(sources: list[Source]) -> None:
    places: dict[str, list[str]] = {}
    for source in sources:
        for node in source.tree.body:
            if source.package in PRODUCT and isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(source.path)
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in IMPLEMENTED} == {}


DAEMONS_HAVE = {"__init__.py", "__main__.py", "decisions.py", "instruction.py", "loop.py", "main.py"}
"""Nimbus, a supervisor and a worker are built alike, so equal names stand for equal parts."""


def test_a_file_name_stands_for_one_thing(sources: list[Source]) -> None:
    """A module below `squall/cli` is called what its command is called, so it is not asked."""
    folders: dict[str, list[str]] = {}
    for source in sources:
        folder, _, name = source.path.rpartition("/")
        if source.package in PRODUCT and not folder.startswith("squall/cli/") and name not in DAEMONS_HAVE:
            folders.setdefault(name, []).append(folder)
    assert {name: found for name, found in folders.items() if len(found) > 1} == {}
