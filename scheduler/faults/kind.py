"""A kind of fault: its meaning, targets, parameters, carrier and undoing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from squall.scheduler.faults.fault import Fault, Value, is_number, shown


class ActsOn(StrEnum):
    """The things that a fault acts on. Each target is resolved to some of these."""

    PROCESSES = "processes"
    """Workers and daemons: for a component, the workers that run it; for a node, its workers."""
    WORKERS = "workers"
    TASKS = "tasks"
    """For a worker or a node, all tasks that run there."""
    LINKS = "links"
    FORKING_PARENTS = "forking parents"
    """For a node, its forking parent."""
    CLUSTER = "the cluster"
    """Takes no target."""


class Carrier(StrEnum):
    """The process that carries a fault out."""

    SUPERVISOR = "the supervisor of its node"
    WORKER = "the worker, on itself"
    START = "the worker, as it starts"
    EXECUTOR = "the executor of the task"
    LINK = "the link shim of the sending worker"
    NIMBUS = "Nimbus"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a fault, set as NAME=VALUE."""

    name: str
    type: str
    """One of TYPES."""
    meaning: str
    default: Value | None = None
    """None: it has no default."""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        if self.choices:
            return ", ".join(self.choices)
        what = TYPES[self.type]
        if self.least is not None and self.most is not None:
            return f"{what} from {self.least:g} to {self.most:g}"
        return what

    def mistake(self, value: Value) -> str | None:
        """The reason why this is not an allowed value; None if it is."""
        if not self._takes(value):
            quotes = f", in double quotes: \"{value}\"" if self._wants_text and not isinstance(value, str) else ""
            return f"{self.name} is {shown(value)}; allowed: {self.allowed}{quotes}"
        if self.type == "pattern":
            try:
                re.compile(str(value))
            except (re.error, OverflowError, RecursionError) as error:
                return f"{self.name} is {shown(value)}, which is no regular expression: {error}"
        return None

    @property
    def _wants_text(self) -> bool:
        return self.type in ("text", "field", "pattern") and not self.choices

    def _takes(self, value: Value) -> bool:
        if self.choices:
            return value in self.choices
        match self.type:
            case "integer":
                fits = isinstance(value, int) and not isinstance(value, bool)
            case "number":
                fits = is_number(value)
            case "text" | "field" | "pattern":
                fits = isinstance(value, str) and bool(value)
            case _:
                return True
        if not fits or self.least is None or self.most is None:
            return fits
        return is_number(value) and self.least <= value <= self.most


TYPES = {
    "integer": "an integer", "number": "a number", "text": "text", "field": "text", "pattern": "a regular expression",
    "value": "a number, a text, true or false",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the catalogue."""

    name: str
    group: str
    meaning: str
    acts_on: ActsOn
    carrier: Carrier
    undo: str
    example: str
    """A line of the plan language."""
    parameters: tuple[Parameter, ...] = ()
    one_of: tuple[str, ...] = ()
    """Parameters of which exactly one must be given."""
    lasts_secs: float | None = None
    """Seconds that it lasts by default; None: it is over at once."""
    is_drawn: bool = False
    """Whether it takes a probability, of each tuple or frame."""

    @property
    def targets(self) -> str:
        """The targets that it takes, for messages."""
        return TARGETS[self.acts_on]

    def params_of(self, fault: Fault) -> dict[str, Value]:
        """Every parameter that has a value, given or by default."""
        defaults = {parameter.name: parameter.default for parameter in self.parameters if parameter.default is not None}
        return {**defaults, **fault.params}

    def ends_after_secs(self, fault: Fault) -> float | None:
        """Seconds that a fault of this kind lasts; None: it is over at once."""
        return fault.for_secs if fault.for_secs is not None else self.lasts_secs

    def params_mistakes(self, params: Mapping[str, Value]) -> list[str]:
        """The mistakes in given parameters."""
        known = {parameter.name: parameter for parameter in self.parameters}
        found = []
        for name, value in params.items():
            if name not in known:
                allowed = f"parameters are {', '.join(known)}" if known else "it has none"
                found.append(f"{self.name} has no parameter {shown(name)}; {allowed}")
            elif mistake := known[name].mistake(value):
                found.append(mistake)
        if self.one_of and len(params.keys() & set(self.one_of)) != 1:
            found.append(f"{self.name} needs exactly one of {', '.join(self.one_of)}")
        needed = [name for name, parameter in known.items() if parameter.default is None and name not in self.one_of]
        found += [f"{self.name} needs {name}=..., {known[name].allowed}" for name in needed if name not in params]
        return found


TARGETS = {
    ActsOn.PROCESSES: "a worker, a component, a task or a node (their workers), or a daemon",
    ActsOn.WORKERS: "a worker, or a component, a task or a node (their workers)",
    ActsOn.TASKS: "a component or a task, or a worker or a node (all that runs there)",
    ActsOn.LINKS: "A -> B or A <-> B, each a node, a worker, a component or a task; A B is A <-> B; A: to and from it; "
    "nothing: all links",
    ActsOn.FORKING_PARENTS: "a node, or its forking parent",
    ActsOn.CLUSTER: "none",
}
