"""Whether a submission makes sense, as far as Nimbus can tell without looking at user code. Pure."""

from __future__ import annotations

import re

import msgspec

from engine.errors import TopologyError
from scheduler.messages import SubmitTopology

NAME_MAX_CHARS = 64
NAME_MAX_BYTES = 200
"""The name is part of file names, which end at 255 bytes."""
TASKS_MAX = 4096
"""Far fewer already keep a machine busy. Bounds what a wrong number costs in placement and in assignments."""
COMPONENT_ID_MAX_CHARS = 128
SUBMISSION_MAX_BYTES = 256 * 1024
"""Configuration and component list. A supervisor is told them once per slot, all in one control frame."""
WORKERS_MAX = 1024
KINDS = ("spout", "bolt", "acker")

_NAME = re.compile(r"[^/.:\\]+")


def check_submission(request: SubmitTopology) -> None:
    """TopologyError listing every mistake."""
    mistakes = [*_name_mistakes(request.name), *_component_mistakes(request)]
    workers = request.conf.get("workers")
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= WORKERS_MAX:
        mistakes.append(f"workers is {workers!r}, allowed is an integer from 1 to {WORKERS_MAX}")
    if request.status not in ("ACTIVE", "INACTIVE"):
        mistakes.append(f"status is {request.status!r}, allowed is 'ACTIVE' or 'INACTIVE'")
    size = len(msgspec.msgpack.encode(request))
    if size > SUBMISSION_MAX_BYTES:
        mistakes.append(f"configuration and components take {size} bytes, allowed are {SUBMISSION_MAX_BYTES}")
    if mistakes:
        raise TopologyError(mistakes)


def _name_mistakes(name: str) -> list[str]:
    if not _NAME.fullmatch(name) or not name.isprintable():
        return [f"topology name {name!r:.80} is not allowed: 1 or more printable characters without / . : \\"]
    if len(name) > NAME_MAX_CHARS or len(name.encode()) > NAME_MAX_BYTES:
        limits = f"{NAME_MAX_CHARS} characters and {NAME_MAX_BYTES} bytes"
        return [f"topology name {name!r:.80} is too long: allowed are {limits}"]
    return []


def _component_mistakes(request: SubmitTopology) -> list[str]:
    mistakes = []
    seen = set()
    for component in request.components:
        name = f"component {component.id!r:.80}"
        if component.id in seen:
            mistakes.append(f"{name} occurs twice")
        seen.add(component.id)
        if not 1 <= len(component.id) <= COMPONENT_ID_MAX_CHARS:
            limit = COMPONENT_ID_MAX_CHARS
            mistakes.append(f"{name} has an id of {len(component.id)} characters, allowed are 1 to {limit}")
        if component.kind not in KINDS:
            mistakes.append(f"{name} is of kind {component.kind!r:.80}, allowed are {', '.join(KINDS)}")
        if component.tasks < 0 or component.executors < min(1, component.tasks):
            mistakes.append(f"{name} has {component.tasks} tasks on {component.executors} executors")
    total = sum(component.tasks for component in request.components)
    if not 1 <= total <= TASKS_MAX:
        mistakes.append(f"the topology has {total} tasks, allowed are 1 to {TASKS_MAX}")
    return mistakes
