"""The table of faults: what can break, what each kind takes, what it does.

`squall faults`, the check of a request and the table in docs/faults.md follow from it.

Relies on: the carrier of a kind knowing its name and its parameters. What acts on tasks, links and starting workers is
carried out by the worker itself; what acts on nodes, or lasts, by a supervisor (the first by name for Nimbus, by Nimbus
for other daemons); the rest by Nimbus.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain
from squall.ipc.frame import KINDS as FRAME_KINDS

Value: TypeAlias = int | float | str

LASTING_SECS, SHORT_SECS = 10.0, 3.0
"""How long a lasting fault lasts by default: long enough to be seen, short enough to wait for."""
ALL_FRAMES = "all"
CLOCK = "clock"


def shown(value: str) -> str:
    """A text of a user, for a message: short, and on one line."""
    text = plain(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}..."


class ActsOn(StrEnum):
    """What a fault acts on: the targets that it takes, for messages."""

    PROCESSES = "a worker, a component, a task or a node (their workers), or a daemon"
    NODES = "a node"
    TASKS = "a component or a task, or a worker or a node (all that runs there)"
    LINKS = (
        "A -> B or A <-> B, each a node, a worker, a component or a task; A B is A <-> B; A: to and from it; nothing: "
        "all links"
    )


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a fault, set as NAME=VALUE. Its type is that of its default; without one it is a text."""

    name: str
    meaning: str
    default: Value | None = None
    least: float = 0.0
    most: float = 0.0
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        if self.choices:
            return ", ".join(self.choices)
        if isinstance(self.default, int | float):
            what = "an integer" if isinstance(self.default, int) else "a number"
            return f"{what} from {self.least:g} to {self.most:g}"
        return "text"

    def read(self, text: str) -> Value:
        """The value that a text means. UsageError if it is not allowed."""
        value: Value = text
        try:
            if isinstance(self.default, int | float):
                value = type(self.default)(text)
                fits = self.least <= value <= self.most
            else:
                fits = text in self.choices if self.choices else bool(text)
        except ValueError:
            fits = False
        if not fits:
            raise UsageError(f"{self.name} is {shown(text)}; allowed: {self.allowed}")
        return value


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the catalogue."""

    name: str
    group: str
    meaning: str
    acts_on: ActsOn
    undo: str
    example: str
    """A line of the plan language."""
    parameters: tuple[Parameter, ...] = ()
    one_of: tuple[str, ...] = ()
    """Parameters of which exactly one must be given."""
    lasts_secs: float | None = LASTING_SECS
    """Seconds that it lasts by default; None: it is over at once."""
    is_drawn: bool = False
    """Whether it takes a probability, of each tuple or frame."""


_FRAMES = Parameter(
    "frames", "the kind of frames to hit; `of data` means the same", ALL_FRAMES,
    choices=(ALL_FRAMES, *FRAME_KINDS.values()),
)  # fmt: skip
_RESTART = "the supervisor starts the worker again, the keeper a daemon"
_WHOLE = "frames go through as they are"

CATALOGUE: dict[str, Kind] = {kind.name: kind for kind in (
    Kind(
        "kill", "processes", "a signal ends the process without a word", ActsOn.PROCESSES, _RESTART,
        "kill worker count[0] at 3s",
        (Parameter("signal", "the signal", "KILL", choices=("KILL", "SEGV", "ABRT")),), lasts_secs=None,
    ),
    Kind(
        "stop", "processes", "SIGSTOP: the process stands still; a worker is replaced after worker_timeout_secs",
        ActsOn.PROCESSES, "SIGCONT", "stop node-1:6700 for 2s", lasts_secs=SHORT_SECS,
    ),
    Kind(
        "throttle", "processes", "the process is stopped and continued in turn, many times a second",
        ActsOn.PROCESSES, "SIGCONT", "throttle worker count[0] share=0.2 for 5s",
        (Parameter("share", "share of the time in which it may run", 0.2, 0.01, 0.99),),
    ),
    Kind(
        "disk-full", "processes", "writes of the process to files fail (RLIMIT_FSIZE)", ActsOn.PROCESSES,
        "writes succeed again", "disk-full node-1 for 5s",
    ),
    Kind(
        "fork-refused", "processes", "the forking parent is refused every fork (EAGAIN)", ActsOn.NODES,
        "forks succeed again", "fork-refused node-1 for 5s",
    ),
    Kind(
        "bad-code", "processes", "a worker that starts cannot load its code, or prepare (of a spout: open) raises",
        ActsOn.TASKS, "the next worker that starts loads it", "bad-code count fails=prepare for 2s",
        (Parameter("fails", "what goes wrong", "load", choices=("load", "prepare")),),
    ),
    Kind(
        CLOCK, "processes", "time.time() and time.time_ns() of the workers jump; no monotonic clock does", ActsOn.TASKS,
        "they jump back", "clock node-1:6700 secs=-3600 for 10s",
        (Parameter("secs", "seconds by which they jump; back if below 0", 3600.0, -1e9, 1e9),),
    ),
    Kind(
        "exception", "tasks", "execute (of a spout: next_tuple) raises", ActsOn.TASKS,
        "it is called as before", "exception in count with probability 0.001", is_drawn=True,
    ),
    Kind(
        "hang", "tasks", "execute (of a spout: next_tuple) does not return before the end of the fault",
        ActsOn.TASKS, "it returns", "hang in count[1] with probability 0.01 for 5s", is_drawn=True,
    ),
    Kind(
        "slow", "tasks", "execute (of a spout: next_tuple) takes longer", ActsOn.TASKS, "it is as fast as it was",
        "slow split ms=5 for 10s", (Parameter("ms", "milliseconds added to each call", 1.0, 0.001, 600_000),),
        is_drawn=True,
    ),
    Kind(
        "poison", "tasks", "a tuple with this content does harm wherever it comes to be executed", ActsOn.TASKS,
        "it is a tuple like any other", "poison count field=word equals=rain does=exit for 20s",
        (
            Parameter("field", "the field of the tuple to look at"),
            Parameter("equals", "the value that makes the tuple poison, as text"),
            Parameter("matches", "a regular expression found in a text that makes the tuple poison"),
            Parameter("does", "what happens", "exception", choices=("exception", "exit", "segfault", "hang")),
        ),
        one_of=("equals", "matches"),
    ),
    Kind(
        "drop", "links", "a frame does not arrive", ActsOn.LINKS, _WHOLE, "drop 5% of data on node-1 -> node-2 for 10s",
        (_FRAMES,), is_drawn=True,
    ),
    Kind(
        "duplicate", "links", "a frame arrives twice", ActsOn.LINKS, _WHOLE, "duplicate 5% of data for 10s",
        (_FRAMES,), is_drawn=True,
    ),
    Kind(
        "delay", "links", "a frame is held back until others have overtaken it, or for a time", ActsOn.LINKS, _WHOLE,
        "delay 10% on node-1 -> node-2 by=8 for 10s",
        (
            _FRAMES, Parameter("by", "frames that go first", 8, 1, 10_000),
            Parameter("ms", "milliseconds in place of frames; 0: none", 0.0, 0.0, 60_000),
        ),
        is_drawn=True,
    ),
    Kind(
        "corrupt", "links", "a frame is damaged: a bit is flipped, it is cut short, or its content cannot be read, "
        "though its checksum is right", ActsOn.LINKS, _WHOLE, "corrupt 1% of data on node-1 <-> node-2 how=cut for 10s",
        (_FRAMES, Parameter("how", "the damage", "flip", choices=("flip", "cut", "garble"))), is_drawn=True,
    ),
    Kind(
        "partition", "links", "nothing arrives, one way (->) or both ways, not even acks in shared memory",
        ActsOn.LINKS, _WHOLE, "partition node-1 node-2 for 3s at 2s every 10s, 3 times", (_FRAMES,),
        lasts_secs=SHORT_SECS,
    ),
)}  # fmt: skip
AT_START = "bad-code"
"""The kind that hits only workers that start."""
