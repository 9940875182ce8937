"""A fault plan: faults from files and from the command line, each a line (see `scheduler.faults.sentence`), and the
driver that carries them out while a topology runs.

::

    seed: 7
    for: 60s
    faults:
      - kill worker count[0] at 3s
      - partition node-1 node-2 for 3s at 2s every 10s

Guarantees
    * Every FaultPlan can be carried out; otherwise one UsageError names every fault that has a mistake.
    * The same faults, seed and times give the same faults, with the same seeds of their draws. At least `every_secs`
      lie between two occurrences of one fault, even if the first was late.
    * Faults begin as the plan says, by the same request as `squall inject`; time counts from the moment when every
      worker was ready for the first time. A topology that was submitted inactive is activated then, after the faults
      that begin at once. If a fault's target is away (dead and not replaced yet), it is tried again until it is there.
    * `end` leaves nothing broken.

Relies on: `turn` being called every few milliseconds; a keeper, which starts daemons again that the plan has killed.
Thread: the job's.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.control import NoAnswer
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient, nimbus_is_stopped
from squall.scheduler.cluster.starting import FIRST_PORT
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.faults.resolution import View, check, resolve, unplaced
from squall.scheduler.faults.sentence import Fault, parse, text_of

_LOOK_SECS = 0.005
"""Between two counts of acks: a fault `after 1000 acked` begins at most that late."""


class _File(msgspec.Struct, forbid_unknown_fields=True, rename={"for_": "for"}):
    faults: list[str]
    seed: int | None = None
    for_: str | int | None = None


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults that can be carried out."""

    faults: tuple[Fault, ...]
    seed: int = 0
    for_secs: float = math.inf
    """Seconds after which it ends, even if faults are still to come."""


def read_plan(lines: Sequence[str], paths: Sequence[str], view: View, for_secs: float | None) -> FaultPlan:
    """The faults of these files, then those of `--fault` in `lines`. `for_secs`: the length of the run."""
    sources: list[tuple[str, str]] = []
    seeds: list[int] = []
    ends_secs = [math.inf if for_secs is None else for_secs]
    for path in paths:
        file = _read(path)
        sources += [(f"{path}: fault {number}", line) for number, line in enumerate(file.faults, 1)]
        seeds += [file.seed] if file.seed is not None else []
        ends_secs += [parse_duration_secs(str(file.for_))] if file.for_ is not None else []
    if len(seeds) > 1:
        raise UsageError(f"{', '.join(paths)} have a seed each; a run has one")
    sources += [("--fault", line) for line in lines]
    faults, mistakes = [], []
    for source, line in sources:
        try:
            fault = parse(line)
            resolve(check(fault)[0], fault.targets, view)
            faults.append(fault)
        except UsageError as error:
            mistakes.append(f"{source}: {error}")
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return FaultPlan(tuple(faults), seeds[0] if seeds else 0, min(ends_secs))


def _read(path: str) -> _File:
    try:
        return msgspec.yaml.decode(Path(path).read_bytes(), type=_File)
    except OSError as error:
        raise UsageError(f"cannot read plan {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"plan {path}: {reason}; a plan has a list of faults, and may have seed and for") from None


def view_before(name: str, topology: Topology, nodes: Sequence[str], slots_per_node: int) -> View:
    """The view of a cluster of its own, with a keeper, on which a topology will run; nothing has been placed."""
    workers = [f"{node}:{FIRST_PORT + slot}" for node in nodes for slot in range(slots_per_node)]
    return View(nodes, workers, unplaced(name, {id_: spec.tasks for id_, spec in topology.components.items()}))


class FaultDriver:
    """Carries out the plan of one run."""

    def __init__(self, plan: FaultPlan, client: NimbusClient, job: Job, tell: Callable[[str], None]) -> None:
        """`tell` gets a line whenever a fault begins, whose time counts as those of the job's reports."""
        self._schedule = Schedule(plan.faults, plan.seed)
        self._ends_secs = plan.for_secs
        self._client = client
        self._job = job
        self._tell = tell
        self._began_at: float | None = None
        self._active = job.record.status != "INACTIVE"
        self._looked_at = 0.0
        self._ended = False

    def turn(self) -> None:
        """Begin the faults that are due."""
        now = time.monotonic()
        if self._ended or now < self._looked_at + _LOOK_SECS:
            return
        self._looked_at = now
        view = self._job.view()
        if view is None or (self._began_at is None and not view.all_ready()):
            return
        self._began_at = self._began_at or now
        secs = now - self._began_at
        if secs >= self._ends_secs:
            self.end()
            return
        for course in self._schedule.due(secs, view.spout_total("acked")):
            if nimbus_is_stopped(self._client.run_dir):
                # It would carry out later what it is asked for now, and be asked again.
                return
            self._begin(course, secs)
        if not self._active:
            self._activate()

    def _activate(self) -> None:
        # If a fault has killed Nimbus meanwhile, ask the next one.
        with contextlib.suppress(NoAnswer):
            self._job.activate()
            self._active = True

    def end(self) -> None:
        """Heal the faults in force, and report those that did not begin as often as the plan says. May be called
        again."""
        if self._ended:
            return
        self._ended = True
        if any(course.begun for course in self._schedule.courses):
            self._client.heal()
        for course in self._schedule.not_begun():
            short = f"began {course.begun} of {course.fault.times} times" if course.begun else "did not begin"
            self._tell(f"{short}: {text_of(course.fault)}: {course.away or 'the run was over before'}")

    def _begin(self, course: Course, secs: float) -> None:
        asked = course.occurrence
        try:
            self._client.inject(asked)
        except UsageError as error:
            course.has_begun(secs)
            self._tell(f"refused: {text_of(replace(asked, seed=None))}: {error}")
        except ClusterError as error:
            course.is_away(secs, str(error))
        else:
            course.has_begun(secs)
            since = time.monotonic() - self._job.started
            self._tell(f"{since:.3f} s: {text_of(replace(asked, seed=None))}")


AGAIN_SECS = 0.1
"""Pause before an occurrence is tried again whose targets are away: replacements take a fraction of a second."""


class Course:
    """One fault of the plan and its progress."""

    def __init__(self, fault: Fault, rng: random.Random) -> None:
        self.fault = fault
        self._rng = rng
        self.due_secs = math.inf if fault.after_acked else fault.at_secs
        """When it begins next; infinite: never again, or not known yet."""
        self.begun = 0
        self.away = ""
        """Why it could not begin when it was tried last."""
        self._seed = rng.getrandbits(32)
        """Of the next occurrence, however often it is tried."""

    @property
    def occurrence(self) -> Fault:
        """This occurrence alone, to be injected now."""
        return replace(self.fault, at_secs=0.0, after_acked=0, every_secs=None, times=None, seed=self._seed)

    def has_begun(self, now_secs: float) -> None:
        """It was carried out."""
        self.begun += 1
        self._seed = self._rng.getrandbits(32)
        every_secs = self.fault.every_secs
        self.due_secs = math.inf if every_secs is None or self.begun == self.fault.times else now_secs + every_secs

    def is_away(self, now_secs: float, why: str) -> None:
        """Its target is away: it is tried again soon."""
        self.due_secs, self.away = now_secs + AGAIN_SECS, why


class Schedule:
    """The faults of one plan. Call `due` whenever time has passed or messages were acked."""

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self.courses = [
            Course(fault, random.Random(f"{seed}/{number}" if fault.seed is None else fault.seed))
            for number, fault in enumerate(faults)
        ]

    def due(self, now_secs: float, acked: int) -> list[Course]:
        """The faults that begin now, in order of their times. Each is to be told what became of it."""
        for course in self.courses:
            if course.due_secs == math.inf and not course.begun and acked >= course.fault.after_acked:
                course.due_secs = now_secs
        due = [course for course in self.courses if course.due_secs <= now_secs]
        return sorted(due, key=lambda course: course.due_secs)

    def not_begun(self) -> list[Course]:
        """The faults that never began, or not as many times as asked."""
        return [course for course in self.courses if course.begun < (course.fault.times or 1)]
