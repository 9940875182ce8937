"""The table of all kinds of faults.

Relies on: the carrier of a kind (`Kind.carrier`) knowing its name and its parameters.
"""

from __future__ import annotations

from squall.ipc.frame import KINDS as FRAME_KINDS
from squall.scheduler.faults.kind import ActsOn, Carrier, Kind, Parameter

STOP_SECS = PARTITION_SECS = 3.0
LASTING_SECS = 10.0
"""How long a lasting fault lasts by default: long enough to be seen, short enough to wait for."""

ALL_FRAMES = "all"
_FRAMES = Parameter(
    "frames", "text", "the kind of frames to hit; `of data` means the same", ALL_FRAMES,
    choices=(ALL_FRAMES, *FRAME_KINDS.values()),
)  # fmt: skip
_RESTART = "the supervisor starts the worker again, the keeper a daemon"
_WORKER_RESTART = "the supervisor starts the worker again"


def _link(name: str, meaning: str, example: str, *parameters: Parameter, drawn: bool = True) -> Kind:
    secs = LASTING_SECS if drawn else PARTITION_SECS
    return Kind(
        name, "links", meaning, ActsOn.LINKS, Carrier.LINK, "frames go through as they are", example,
        (_FRAMES, *parameters), lasts_secs=secs, is_drawn=drawn,
    )  # fmt: skip


_PROCESSES = (
    Kind(
        "kill", "processes", "SIGKILL: the process ends without a word", ActsOn.PROCESSES, Carrier.SUPERVISOR, _RESTART,
        "kill worker count[0] at 3s",
    ),
    Kind(
        "stop", "processes", "SIGSTOP: the process stands still; a worker is replaced after worker_timeout_secs",
        ActsOn.PROCESSES, Carrier.SUPERVISOR, "SIGCONT", "stop node-1:6700 for 2s", lasts_secs=STOP_SECS,
    ),
    Kind(
        "throttle", "processes", "the process is stopped and continued in turn, many times a second",
        ActsOn.PROCESSES, Carrier.SUPERVISOR, "SIGCONT", "throttle worker count[0] share=0.2 for 5s",
        (Parameter("share", "number", "share of the time in which it may run", 0.2, 0.01, 0.99),),
        lasts_secs=LASTING_SECS,
    ),
    Kind(
        "segfault", "processes", "the worker reads an address without memory: SIGSEGV", ActsOn.WORKERS, Carrier.WORKER,
        _WORKER_RESTART, "segfault random worker at 2s",
    ),
    Kind(
        "exit", "processes", "the worker leaves by os._exit, as if user code had called it", ActsOn.WORKERS,
        Carrier.WORKER, _WORKER_RESTART, "exit worker split[0] status=0 after 5000 acked",
        (Parameter("status", "integer", "exit code", 0, 0, 255),),
    ),
    Kind(
        "memory-limit", "processes", "the worker may take only so much more memory (RLIMIT_AS), then MemoryError",
        ActsOn.WORKERS, Carrier.SUPERVISOR, "the limit is lifted", "memory-limit node-1:6700 megabytes=16 for 5s",
        (Parameter("megabytes", "integer", "megabytes beyond what it occupies", 16, 0, 1_000_000),),
        lasts_secs=LASTING_SECS,
    ),
    Kind(
        "descriptor-limit", "processes",
        "the process may open only so many more descriptors (RLIMIT_NOFILE), then EMFILE", ActsOn.PROCESSES,
        Carrier.SUPERVISOR, "the limit is lifted", "descriptor-limit nimbus descriptors=2 for 5s",
        (Parameter("descriptors", "integer", "descriptors beyond those that it has open", 0, 0, 1_000_000),),
        lasts_secs=LASTING_SECS,
    ),
    Kind(
        "fork-refused", "processes", "the forking parent is refused every fork (EAGAIN)", ActsOn.FORKING_PARENTS,
        Carrier.SUPERVISOR, "forks succeed again", "fork-refused node-1 for 5s", lasts_secs=LASTING_SECS,
    ),
)  # fmt: skip

_EXECUTORS = (
    Kind(
        "exception", "executors", "execute (of a spout: next_tuple) raises", ActsOn.TASKS, Carrier.EXECUTOR,
        "it is called as before", "exception in count with probability 0.001", lasts_secs=LASTING_SECS, is_drawn=True,
    ),
    Kind(
        "hang", "executors", "execute (of a spout: next_tuple) does not return before the end of the fault",
        ActsOn.TASKS, Carrier.EXECUTOR, "it returns", "hang in count[1] with probability 0.01 for 5s",
        lasts_secs=LASTING_SECS, is_drawn=True,
    ),
    Kind(
        "slow", "executors", "execute (of a spout: next_tuple) takes longer", ActsOn.TASKS, Carrier.EXECUTOR,
        "it is as fast as it was", "slow split ms=5 for 10s",
        (Parameter("ms", "number", "milliseconds added to each call", 1.0, 0.001, 600_000),), lasts_secs=LASTING_SECS,
        is_drawn=True,
    ),
    Kind(
        "poison", "tuples", "a tuple with this content does harm wherever it comes to be executed", ActsOn.TASKS,
        Carrier.EXECUTOR, "it is a tuple like any other", "poison count field=word equals=rain does=exit for 20s",
        (
            Parameter("field", "field", "the field of the tuple to look at"),
            Parameter("equals", "value", "the value that makes the tuple poison"),
            Parameter("matches", "pattern", "a pattern found in a text that makes the tuple poison"),
            Parameter("does", "text", "what happens", "exception", choices=("exception", "exit", "segfault", "hang")),
        ),
        one_of=("equals", "matches"), lasts_secs=LASTING_SECS,
    ),
)  # fmt: skip

_LINKS = (
    _link("drop", "a frame does not arrive", "drop 5% of data on node-1 -> node-2 for 10s"),
    _link("duplicate", "a frame arrives twice", "duplicate 5% of data for 10s"),
    _link(
        "delay", "a frame is held back until others have overtaken it", "delay 10% on node-1 -> node-2 by=8 for 10s",
        Parameter("by", "integer", "frames that go first", 8, 1, 10_000),
    ),
    _link("reorder", "a frame changes places with the next one", "reorder 10% for 10s"),
    _link("corrupt", "one bit of a frame is flipped", "corrupt 1% of data on node-1 <-> node-2 for 10s"),
    _link("truncate", "a frame is cut short", "truncate 1% of data for 10s"),
    Kind(
        "garble", "links", "the content of a data frame cannot be read, though its checksum is right",
        ActsOn.LINKS, Carrier.LINK, "frames go through as they are", "garble 1% on node-1 -> node-2 for 10s",
        lasts_secs=LASTING_SECS, is_drawn=True,
    ),
    _link(
        "partition", "nothing arrives, one way (->) or both ways, not even acks in shared memory",
        "partition node-1 node-2 for 3s at 2s every 10s, 3 times", drawn=False,
    ),
    _link(
        "slow-link", "every frame is under way for longer", "slow-link node-1 -> node-2 ms=50 for 10s",
        Parameter("ms", "number", "milliseconds added to each frame", 20.0, 0.001, 60_000), drawn=False,
    ),
)

_REST = (
    Kind(
        "bad-code", "code", "a worker that starts cannot load its code, or prepare (of a spout: open) raises",
        ActsOn.TASKS, Carrier.START, "the next worker that starts loads it", "bad-code count fails=prepare for 2s",
        (Parameter("fails", "text", "what goes wrong", "load", choices=("load", "prepare")),), lasts_secs=LASTING_SECS,
    ),
    Kind(
        "bad-config", "code", "a worker that starts gets this value in its topology's configuration", ActsOn.TASKS,
        Carrier.START, "the next worker that starts gets the right one",
        "bad-config count setting=max_spout_pending value=-1 for 2s",
        (
            Parameter("setting", "text", "name of the setting", "message_timeout_secs"),
            Parameter("value", "value", "its value; one that is not allowed is refused", "bad"),
        ),
        lasts_secs=LASTING_SECS,
    ),
    Kind(
        "store-locked", "store", "another process holds the lock of Nimbus's database", ActsOn.CLUSTER,
        Carrier.SUPERVISOR, "the lock is given back", "store-locked for 2s", lasts_secs=LASTING_SECS,
    ),
    Kind(
        "store-full", "store", "Nimbus's database may not grow (max_page_count)", ActsOn.CLUSTER, Carrier.NIMBUS,
        "it may", "store-full for 5s", lasts_secs=LASTING_SECS,
    ),
    Kind(
        "torn-write", "store", "Nimbus dies in the middle of its next transaction", ActsOn.CLUSTER, Carrier.NIMBUS,
        "it does not; the keeper has started it again, and the store is as before the transaction", "torn-write at 1s",
        lasts_secs=LASTING_SECS,
    ),
    Kind(
        "disk-full", "machine", "writes of the process to files fail (RLIMIT_FSIZE)", ActsOn.PROCESSES,
        Carrier.SUPERVISOR, "writes succeed again", "disk-full node-1 for 5s", lasts_secs=LASTING_SECS,
    ),
    Kind(
        "clock-jump", "machine",
        "time.time and time_ns of the worker show another time; monotonic clocks never jump",
        ActsOn.WORKERS, Carrier.WORKER, "it shows the right time", "clock-jump all workers secs=-3600 for 10s",
        (Parameter("secs", "number", "seconds later; earlier if below 0", 3600.0, -(10**9), 10**9),),
        lasts_secs=LASTING_SECS,
    ),
    Kind(
        "shared-memory-exhausted", "machine", "the worker's arena has no room: big values travel in the frames",
        ActsOn.WORKERS, Carrier.WORKER, "it has room", "shared-memory-exhausted all workers for 10s",
        lasts_secs=LASTING_SECS,
    ),
)  # fmt: skip

CATALOGUE: dict[str, Kind] = {kind.name: kind for kind in (*_PROCESSES, *_EXECUTORS, *_LINKS, *_REST)}
AT_START = frozenset(kind.name for kind in CATALOGUE.values() if kind.carrier is Carrier.START)
"""Kinds that hit only workers that start."""
