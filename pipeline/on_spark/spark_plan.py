"""Decides what of a topology Spark can run: each component, edge and setting is EXACT, APPROX or REFUSED.

Guarantees: what is EXACT gives the answers that Squall's own engine gives; what is APPROX differs as its text says;
what is REFUSED would lose or invent tuples, and its text says what to do. Reads the topology's objects and the code of
its classes only: no file, no process, no Spark. Relies on `pipeline.on_spark` keeping its word: this is its contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import CodeType, FunctionType
from typing import Any

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.api.component import BasicBolt, Bolt, Spout
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
from squall.pipeline.feed.feed_spout import FeedSpout
from squall.pipeline.on_spark.lives import is_overridden
from squall.pipeline.sink.parquet_sink import ParquetSink
from squall.pipeline.tail.tail_spout import TailSpout

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
    spout: Any = spec.component
    why, to_do = [], ""
    is_feed = isinstance(spout, FeedSpout) and not is_overridden(spout, FeedSpout)
    if isinstance(spout, AsyncSpout):
        why = ["an AsyncSpout emits when it likes, and a batch must end"]
        to_do = "derive it from ReplayingSpout, whose read() may yield None"
    elif spout.blocking:
        why = ["blocking = True: a batch cannot end while next_tuple waits"]
        to_do = "derive it from ReplayingSpout, whose read() may yield None"
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
    elif isinstance(spout, ReplayingSpout) and not is_overridden(spout, ReplayingSpout):
        how = "read() is begun anew and brought to its position, which is stored with every batch"
    else:
        how = "its attributes are stored with every batch"
        why.append("what it took from outside in a batch that was lost is not taken again, unless it is offered again")
        if _uses_state_dir(spout):
            why.append(_OWN_FILES)
    if "max_spout_pending" in spec.config:
        why.append("max_spout_pending does not apply: a batch bounds the open messages")
    return PlanFinding("spout", spec.id, APPROX if why else EXACT, how, "; ".join(why))


_OWN_FILES = "files in its state directory are not undone with a batch that is lost, and every machine must see them"


def _bolt(spec: ComponentSpec, config: Config) -> PlanFinding:
    bolt: Any = spec.component
    why = []
    if spec.config.get("tick_tuple_freq_secs", config.tick_tuple_freq_secs) is not None:
        why.append("a tick comes at the end of a batch, once it is due, and not in between")
    if isinstance(bolt, AsyncBolt):
        why.append("it executes one tuple at a time; setup and teardown are called for each batch")
    if isinstance(bolt, ParquetSink):
        why.append("a batch that is run again writes its rows again: give it a key, and readers drop equal _message_id")
    if bolt.blocking and config.execute_timeout_of(spec.config) is not None:
        why.append("execute_timeout_secs is not watched")
    if _uses_state_dir(bolt):
        why.append(_OWN_FILES)
    how = "its attributes are stored with every batch, for each task; what cannot be pickled, prepare makes again"
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
            "setting", "message_timeout_secs", APPROX, "looked at between two batches",
            "a message whose batch takes longer is acked all the same",
        )


def _uses_state_dir(component: object) -> bool:
    """Return True if code of the component's own classes names the state directory."""
    ours = {Spout, Bolt, BasicBolt, ReplayingSpout, FeedSpout}
    for cls in type(component).__mro__:
        for value in vars(cls).values() if cls not in ours else ():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(function, FunctionType) and _names(function.__code__) & {"state_dir", "shared_state_dir"}:
                return True
    return False


def _names(code: CodeType) -> set[str]:
    inside = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inside)
