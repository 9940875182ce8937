"""Decides what of a topology Spark can run: each component, edge and setting is EXACT, APPROX or REFUSED.

Guarantees: what is EXACT gives the answers that Squall's own engine gives, as far as the code of components shows; what
is APPROX differs as its text says; what is REFUSED would lose or invent tuples, and its text says what to do. Reads the
topology's objects and the code that they reach only: no file, no process, no Spark. Relies on `pipeline.on_spark`
keeping its word: this is its contract.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.api.component import Bolt
from squall.engine.api.config import Config
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.topology import (
    ALL,
    CUSTOM,
    DIRECT,
    FIELDS,
    GLOBAL,
    LOCAL_OR_SHUFFLE,
    NONE,
    PARTIAL_KEY,
    SHUFFLE,
    ComponentSpec,
    Subscription,
    Topology,
)
from squall.engine.state.sink_task import GatheringTask, SinkTask
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.windowing.results import ResultsSpout
from squall.engine.state.windowing.window_task import WindowTask
from squall.pipeline.feed.feed_spout import FeedSpout
from squall.pipeline.on_spark.lives import is_overridden
from squall.pipeline.on_spark.snapshot import is_library
from squall.pipeline.on_spark.woven_lives import users_of
from squall.pipeline.tail_spout import TailSpout

EXACT, APPROX, REFUSED = "EXACT", "APPROX", "REFUSED"
_ORDER = (EXACT, APPROX, REFUSED)

_CONSTRUCTS = {
    SHUFFLE: "dealt to the tasks in turn, in each batch",
    LOCAL_OR_SHUFFLE: "as shuffle: no task of Spark's is nearer than another",
    NONE: "to any task",
    FIELDS: "equal values to the same task, in every process and run",
    PARTIAL_KEY: "the same two tasks of a key; loads are compared within a batch",
    ALL: "to every task",
    GLOBAL: "to the task with the lowest number",
    DIRECT: "to the task that the sender names",
    CUSTOM: "to the tasks that choose_tasks returns",
}


@dataclass(frozen=True)
class PlanFinding:
    """The verdict on one component, edge or setting."""

    what: str
    """"spout", "bolt", "edge" or "setting"."""
    name: str
    verdict: str
    how: str
    """How Spark runs it."""
    why: str = ""
    """Why it is not EXACT."""
    to_do: str = ""
    """What to do instead of what is REFUSED."""


@dataclass(frozen=True)
class SparkPlan:
    """The verdicts on a topology."""

    findings: tuple[PlanFinding, ...]

    @property
    def verdict(self) -> str:
        """The worst of them."""
        return max((finding.verdict for finding in self.findings), key=_ORDER.index, default=EXACT)

    def of(self, verdict: str) -> list[PlanFinding]:
        return [finding for finding in self.findings if finding.verdict == verdict]

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "findings": [asdict(finding) for finding in self.findings]}


def plan_topology(topology: Topology, config: Config | None = None) -> SparkPlan:
    """Decide about a topology with these settings."""
    looping = loops(topology)
    findings: list[PlanFinding] = []
    for spec in topology.components.values():
        findings.append(_spout(spec) if spec.is_spout else _bolt(spec, config or Config()))
        findings += [_edge(spec, subscription, looping) for subscription in spec.subscriptions]
    findings += _settings(config or Config())
    return SparkPlan(tuple(findings))


def loops(topology: Topology) -> set[tuple[str, str]]:
    """The edges (source, target) that lie on a cycle."""
    reads: Mapping[str, set[str]] = {
        spec.id: {one.source for one in spec.subscriptions} for spec in topology.components.values()
    }

    def above(component: str) -> set[str]:
        found, todo = set[str](), list(reads[component])
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += reads.get(name, ())
        return found

    upstream = {component: above(component) for component in reads}
    return {
        (source, target) for target, sources in reads.items() for source in sources if target in upstream[source]
        or source == target
    }


def _spout(spec: ComponentSpec) -> PlanFinding:
    spout: Any = users_of(spec.component)
    why, to_do = [], ""
    is_feed = isinstance(spout, FeedSpout) and not is_overridden(spout, FeedSpout)
    is_read_again = isinstance(spout, ReplayingSpout) and not is_overridden(spout, ReplayingSpout)
    if isinstance(spout, AsyncSpout) or spout.blocking:
        why = ["an AsyncSpout emits when it likes, and one with blocking = True waits: a batch could not end"]
        to_do = "derive it from ReplayingSpout, whose read() may yield None"
    elif isinstance(spout, ResultsSpout):
        why, to_do = ["the results of windows lie in a store on one machine"], "leave windows out"
    elif isinstance(spout, TailSpout):
        why = ["a TailSpout never ends, and its file may be rotated away before a batch is read again"]
        to_do = "give a list of the files to FeedSpout"
    elif is_feed and spout.follow:
        why, to_do = ["follow=True: after a crash, parts may be found in another order"], "use FeedSpout without follow"
    if to_do:
        to_do += ", or run it on Squall's own engine"
        return PlanFinding("spout", spec.id, REFUSED, "not at all", why[0], to_do)
    if is_feed:
        how = "ranges are dealt to the tasks; the position of each is stored with every batch"
    elif is_read_again:
        how = "read() is begun anew and brought to its position, which is stored with every batch"
    else:
        how = "its attributes are stored with every batch"
        why.append("what it took from outside in a batch that was lost is not taken again, unless it is offered again")
    why += _code_differs(spout, has_files=not is_read_again)
    if "max_spout_pending" in spec.config:
        why.append("max_spout_pending does not apply: a batch bounds the open messages")
    return PlanFinding("spout", spec.id, APPROX if why else EXACT, how, "; ".join(why))


def _bolt(spec: ComponentSpec, config: Config) -> PlanFinding:
    bolt: Any = users_of(spec.component)
    how = "its attributes are stored with every batch, for each task; what cannot be pickled, prepare makes again"
    if isinstance(bolt, WindowTask):
        return PlanFinding(
            "bolt", spec.id, REFUSED, "not at all", "its windows lie in a store on one machine",
            "run it on Squall's own engine",
        )
    if bolt is not spec.component and isinstance(bolt, Bolt) and not isinstance(bolt, AsyncBolt):
        return PlanFinding(
            "bolt", spec.id, REFUSED, "not at all", "before state, what it holds and acks later would count twice",
            "derive it from BasicBolt or BatchBolt, or run it on Squall's own engine",
        )
    if isinstance(bolt, StatefulTask | SinkTask):
        how, bolt = "its state is stored with every batch; prepare makes its attributes again for each", bolt.inner
    why = []
    ticks = spec.config.get("tick_tuple_freq_secs", config.tick_tuple_freq_secs)
    if ticks is not None and type(spec.component) is not GatheringTask:
        why.append("a tick comes at the end of a batch, once it is due, and not in between")
    if isinstance(bolt, AsyncBolt):
        why.append("it executes one tuple at a time; setup and teardown are called for each batch")
    if bolt.blocking and config.execute_timeout_of(spec.config) is not None:
        why.append("execute_timeout_secs is not watched")
    why += _code_differs(bolt)
    return PlanFinding("bolt", spec.id, APPROX if why else EXACT, how, "; ".join(why))


def _edge(spec: ComponentSpec, subscription: Subscription, looping: set[tuple[str, str]]) -> PlanFinding:
    stream = "" if subscription.stream == "default" else f".{subscription.stream}"
    fields = f"({', '.join(subscription.fields)})" if subscription.fields else ""
    name = f"{subscription.source}{stream} -> {spec.id} [{subscription.grouping}{fields}]"
    how = _CONSTRUCTS[subscription.grouping]
    if (subscription.source, spec.id) in looping:
        return PlanFinding(
            "edge", name, REFUSED, "not at all", "it is part of a cycle: within a batch, tuples go forward only",
            "run it on Squall's own engine, or unroll the loop into a bolt",
        )
    if subscription.grouping == CUSTOM:
        return PlanFinding(
            "edge", name, APPROX, how, "the grouping is prepared anew for each batch: what it kept of earlier tuples "
            "is gone",
        )
    return PlanFinding("edge", name, EXACT, how)


def _settings(config: Config) -> Iterator[PlanFinding]:
    plain = Config()
    if config.max_spout_pending != plain.max_spout_pending:
        yield PlanFinding(
            "setting", "max_spout_pending", APPROX, "not applied", "a batch bounds the open messages (--batch-rows)"
        )
    if config.message_timeout_secs != plain.message_timeout_secs:
        yield PlanFinding(
            "setting", "message_timeout_secs", APPROX, "from the end of a message's batch, between two batches",
            "a message whose batch takes longer is acked all the same",
        )


#: How the names of clocks and of sources of chance begin, with their modules.
_UNSTEADY = (
    "datetime.now", "datetime.today", "datetime.utcnow", "numpy.random.mtrand.", "posix.urandom", "random.", "secrets.",
    "time.monotonic", "time.perf_counter", "time.time", "uuid.uuid1", "uuid.uuid4",
)


def _code_differs(component: object, has_files: bool = True) -> Iterator[str]:
    """How a component differs, as its code shows: that of its methods and of the user's functions and classes that they
    name, directly or in turn. Not of `__init__`, which is called before Spark runs anything."""
    users = [cls for cls in type(component).__mro__ if not is_library(cls.__module__)]
    todo: list[Any] = [value for cls in users for name, value in vars(cls).items() if name != "__init__"]
    todo += vars(component).values()
    seen: dict[int, Any] = {id(cls): cls for cls in users}
    unsteady, names_files = set[str](), False
    while todo:
        value = todo.pop()
        names_files |= isinstance(value, str) and value in ("state_dir", "shared_state_dir")
        if isinstance(value, property | staticmethod | classmethod | partial):
            value = getattr(value, "fget", getattr(value, "func", getattr(value, "__func__", None)))
        if not isinstance(value, FunctionType | BuiltinFunctionType | MethodType | type) or id(value) in seen:
            continue
        seen[id(value)] = value
        name = _full_name(value)
        if not is_library(name.rpartition(".")[0]):
            todo += vars(value).values() if isinstance(value, type) else _named(value)
        elif name.startswith(_UNSTEADY) and not isinstance(value, type):
            unsteady.add(name)
    if names_files and has_files:
        yield "files in its state directory are not undone with a lost batch, and every machine must see them"
    if unsteady:
        yield f"it uses {', '.join(sorted(unsteady))}: what is run again, perhaps on another machine, gets other values"


def _full_name(value: Any) -> str:
    """The name of a function or a class with its module: of a bound method, that of the object's class."""
    home = getattr(value, "__self__", value)
    if not isinstance(home, type | FunctionType):
        home = value if isinstance(home, ModuleType) else type(home)
    return f"{home.__module__}.{getattr(value, '__name__', '')}"


def _named(function: Any, code: CodeType | None = None) -> Iterator[Any]:
    """The names in a function's code, and the objects that they name: globals, those of its closure, and attributes of
    modules and classes."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return
    code = code or function.__code__
    known = {name: value for name, value in function.__globals__.items() if name not in code.co_varnames}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known |= {name: cell.cell_contents for name, cell in cells if cell != CellType()}
    value: Any = None
    module: Any = None
    for step in dis.get_instructions(code):
        owner, value, name = value, None, step.argval
        match step.opname.split("_"):
            case ["LOAD", "GLOBAL" | "DEREF" | "FAST", *_]:
                value = known.get(name)
            case ["STORE", "FAST", *_]:
                # After `from module import name` the module is at hand again.
                known[name], value = owner, module
            case ["IMPORT", "NAME"]:
                value = module = sys.modules.get(name)
            case ["IMPORT", "FROM"] | ["LOAD", "ATTR" | "METHOD"] if isinstance(owner, ModuleType | type | Random):
                with suppress(AttributeError, ImportError):  # of a module that imports on demand
                    value = getattr(owner, name)
        yield from (name, value)
        if isinstance(name, CodeType):
            yield from _named(function, name)
