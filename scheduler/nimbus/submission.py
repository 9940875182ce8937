"""Checks requests to Nimbus, as far as possible without user code, and makes records of them. Pure."""

from __future__ import annotations

import msgspec

from squall.engine.api.stream import SYSTEM_PREFIX
from squall.engine.errors import TopologyError, UsageError
from squall.engine.foreign.text import name_mistake
from squall.scheduler.common.environment import environment_mistakes
from squall.scheduler.common.messages import ComponentSummary, RebalanceTopology, SubmitTopology, TopologyRecord

NAME_MAX_CHARS = 64
NO_NAME_CHARS = "/.:\\"
"""Characters that mean something in file names, or in the names of workers and tasks."""
TASKS_MAX = 10_240
"""Tasks of a topology: far fewer keep a machine busy; bounds the cost of a wrong number, as docs/guarantees.md says."""
SUBMISSION_MAX_BYTES = 256 * 1024
"""Configuration and component list: a supervisor gets them once per slot, all in one control frame."""
WORKERS_MAX = 1024

def check_submission(request: SubmitTopology) -> None:
    """TopologyError that lists every mistake. What the builder of a topology has checked is not checked again."""
    mistakes = [*name_mistakes(request.name), *_workers_mistakes(request.conf.get("workers"))]
    total = sum(component.tasks for component in request.components)
    if not 1 <= total <= TASKS_MAX:
        mistakes.append(f"the topology has {total} tasks; allowed: 1 to {TASKS_MAX}")
    size = len(msgspec.msgpack.encode(request))
    if size > SUBMISSION_MAX_BYTES:
        mistakes.append(f"configuration and components take {size} bytes; allowed: at most {SUBMISSION_MAX_BYTES}")
    mistakes += environment_mistakes(request.env)
    if mistakes:
        raise TopologyError(mistakes)


def record_of(request: SubmitTopology, topology_id: str, created_unix_secs: float) -> TopologyRecord:
    """The record of a submitted topology."""
    return TopologyRecord(
        id=topology_id,
        name=request.name,
        status=request.status,
        conf=request.conf,
        components=request.components,
        blob=request.blob,
        sys_path=request.sys_path,
        created_unix_secs=created_unix_secs,
        remove_when_drained=request.remove_when_drained,
        cwd=request.cwd,
        env_names=sorted(request.env),
    )


def check_topology_name(name: str) -> None:
    """UsageError unless a topology may have this name."""
    if mistakes := name_mistakes(name):
        raise UsageError("; ".join(mistakes))


def check_rebalance(request: RebalanceTopology, components: list[ComponentSummary]) -> None:
    """UsageError that lists every mistake."""
    check_wait(request.wait_secs)
    mistakes = [] if request.workers is None else _workers_mistakes(request.workers)
    if request.workers is None and not request.executors:
        mistakes.append("nothing is to change: give workers, or executors of a component")
    known = {component.id: component for component in components}
    for name, executors in request.executors.items():
        if name not in known:
            mistakes.append(f"there is no component {name!r:.80}; components are {', '.join(sorted(known))}")
        elif not 1 <= executors <= known[name].tasks:
            limit = f"1 to {known[name].tasks}, its tasks"
            mistakes.append(f"component {name!r} cannot have {executors} executors; allowed: {limit}")
    if mistakes:
        raise UsageError("; ".join(mistakes))


def check_wait(wait_secs: float) -> None:
    """UsageError unless it is a finite number of seconds from 0 up."""
    if not 0 <= wait_secs < float("inf"):
        raise UsageError(f"wait_secs is {wait_secs}; allowed: a number of seconds from 0 up")


def _workers_mistakes(workers: object) -> list[str]:
    if isinstance(workers, int) and not isinstance(workers, bool) and 1 <= workers <= WORKERS_MAX:
        return []
    return [f"workers is {workers!r}; allowed: an integer from 1 to {WORKERS_MAX}"]


def name_mistakes(name: str) -> list[str]:
    """Return why a topology may not have this name."""
    if mistake := name_mistake(name, NAME_MAX_CHARS):
        return [f"a topology name {mistake}"]
    if set(name) & set(NO_NAME_CHARS):
        return [f"topology name {name!r} holds one of {' '.join(NO_NAME_CHARS)}, which are not allowed in it"]
    if name.startswith(SYSTEM_PREFIX):
        return [f"topology name {name!r} begins with {SYSTEM_PREFIX!r}; such names are the system's"]
    return []
