"""Deals the state of a component to another number of tasks, by key, before any of these opens its store.

::

    count-0/state.db ─┐                                                  ┌─► count-0/state.db
    count-1/state.db ─┴─► count-dealt.new/ ─ rename ─► count-dealt/ ─────┼─► count-1/state.db
                          one store for each new task                    └─► count-2/state.db

A key belongs to the task that a fields grouping sends it to, which is checked for each with the old number of tasks.
What was absorbed goes to each task: an identity is one tuple's, and is looked for where that comes.

Guarantees: the stores are those of the old number of tasks until the rename, and those of the new one from then on,
whatever is killed when; who comes next finishes. State that cannot be divided is left as it was.

Relies on: all tasks of the old number having ended, or else their stores are locked; every task calling `deal` first.
Thread: the task's.
"""

from __future__ import annotations

import contextlib
import marshal
import pickle
import shutil
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

from squall.engine.api.context import TopologyContext
from squall.engine.api.topology import ALL, FIELDS
from squall.engine.errors import ClusterError
from squall.engine.foreign.files import locked, sync
from squall.engine.foreign.stable_hash import key_hash
from squall.engine.foreign.text import plural, repr_of
from squall.engine.state.input_rows import Read, Row
from squall.engine.state.keyed import State
from squall.engine.state.keys import Spelling
from squall.engine.state.reading import directories_of, meta_of, names_of, stores_of, task_of, tasks_of
from squall.engine.state.task_store import (
    GONE,
    LOCK_FILE,
    OUTSIDE,
    STORE_FILE,
    TaskStore,
    pack_value,
    read_key,
    unpack_row,
)
from squall.engine.state.times import CLOCK
from squall.engine.state.windowing.event_time import TIME_KEY
from squall.engine.state.windowing.panes import KEY, PART
from squall.engine.state.windowing.windows import TIME, WINDOWS, Declaration, changed

DEALT = "dealt"
"""In a store: the number of tasks from which it was dealt to several."""
_AT_ONCE = 5_000
TextHash = Callable[[str], int]


class Division:
    """How the state of a component is divided among its tasks."""

    def __init__(
        self, component: str, tasks: int, made_by: int, reads: Sequence[Read], windows: Declaration | None,
        text_hash: TextHash,
    ) -> None:
        """`made_by`: the number of tasks that have made it. `windows`: what these have declared."""
        self.component, self.tasks, self.made_by, self.windows = component, tasks, made_by, windows
        self._reads, self._text_hash = reads, text_hash
        self._is_checked = False

    def refused(self, why: str) -> ClusterError:
        """The error of state that cannot be divided."""
        return ClusterError(
            f"the state of {self.component} was made by {plural(self.made_by, 'task')} and cannot be dealt to "
            f"{self.tasks}: {why}; keep tasks={self.made_by}, or begin anew (--fresh)"
        )

    def new_owner(self, name: Any, index: int) -> int | None:
        """The index of the new task that gets a key of an old one's state; None for event time, which each gets."""
        if self.windows is not None and name == TIME_KEY:
            return None
        if not self._is_checked:
            self._check()
        return self._moved(self._value_of(name), index, f"state[{repr_of(name)}]")

    def new_owner_of_row(self, row: Row, index: int) -> int:
        """The same of a tuple, of windows without a key."""
        read, values = self._reads[row[0]], row[1]
        if read.grouping != FIELDS:
            raise self.refused(f"its windows without a key have tuples of {read.component!r}, not grouped by fields")
        its = tuple(values[read.fields.index(field)] for field in read.by)
        return self._moved(its[0] if len(its) == 1 else its, index, f"a tuple of {read.component!r}")

    def _check(self) -> None:
        """ClusterError if the inputs do not say to which of the tasks a key belongs."""
        by_fields = {read.by for read in self._reads if read.grouping == FIELDS}
        for read in self._reads if self.tasks > 1 else ():
            # Of several tasks, each got a copy, and has keys of it that do not belong there.
            if read.grouping != FIELDS and (read.grouping != ALL or self.made_by == 1):
                raise self.refused(f"it reads {read.component!r} by {read.grouping} grouping, not by fields")
        if self.windows is not None and self.windows.key:
            if len(by_fields) > 1:
                raise self.refused("its inputs are grouped by different fields")
            if not {*chain(*by_fields)} <= {*self.windows.key}:
                raise self.refused(f"its windows are by {', '.join(self.windows.key)}, and its input is not")
        self._is_checked = True

    def _value_of(self, name: Any) -> Any:
        """What the tuples of a key of the state are grouped by."""
        if self.windows is None:
            return name[0] if type(name) is tuple and len(name) == 1 else name
        fields, key = self.windows.key, name[1]
        if len(fields) == 1:
            return key
        by = next((read.by for read in self._reads if read.grouping == FIELDS), fields)
        its = tuple(key[fields.index(field)] for field in by)
        return its[0] if len(its) == 1 else its

    def _moved(self, value: Any, index: int, what: str) -> int:
        hashed = key_hash(value, self._text_hash)
        if hashed % self.made_by != index:
            raise self.refused(f"task {index} has {what}, which is not there by what the input is grouped by")
        return hashed % self.tasks


# ---- looked at from outside ----


def check(
    root: Path, component: str, tasks: int, reads: Sequence[Read], declared: Declaration | None, drops: bool,
    text_hash: TextHash,
) -> int:
    """ClusterError if state below `root` cannot be taken over by a component of so many tasks and these windows.
    Returns how many open windows it drops. Others may be writing the state."""
    stores = stores_of(root, component)
    if _dealt(root, component).exists():
        return 0  # some are of one number of tasks and some of another, until the next task has finished
    dropped = _open_windows(component, _declared_otherwise(stores, declared), declared, drops)
    made_by = _made_by(component, stores)
    if made_by not in (None, tasks) and not dropped:
        division = Division(component, tasks, made_by, reads, _windows_of(stores), text_hash)
        for path in stores:
            for name in names_of(path) if division.windows is None or division.windows.key else ():
                if type(name) is not Spelling:
                    division.new_owner(name, task_of(path))
    return dropped


def _made_by(component: str, stores: Sequence[Path]) -> int | None:
    """The number of tasks that have made these stores; None if there are none."""
    numbers = sorted({made_by for made_by in map(tasks_of, stores) if made_by is not None})
    if len(numbers) > 1:
        raise ClusterError(
            f"the state of {component} in {stores[0].parent.parent} was made by {' and by '.join(map(str, numbers))} "
            "tasks: directories of it are missing or another's; put back a copy, or begin anew (--fresh)"
        )
    return numbers[0] if numbers else None


def _windows_of(stores: Sequence[Path]) -> Declaration | None:
    packed = [meta for meta in (meta_of(path, WINDOWS) for path in stores) if meta is not None]
    return Declaration.unpacked(packed[0]) if packed else None


def _declared_otherwise(stores: Sequence[Path], declared: Declaration | None) -> list[Path]:
    """The stores of which open windows, if there are any, were declared otherwise."""
    if declared is None:
        return []
    return [path for path in stores if meta_of(path, WINDOWS) not in (None, declared.packed)]


def _open_windows(component: str, stores: Sequence[Path], declared: Declaration | None, drops: bool) -> int:
    """The number of open windows in stores. ClusterError if there are any, unless it drops them."""
    count = sum(_is_part(name) for path in stores for name in names_of(path))
    before = _windows_of(stores)
    if count and not drops and declared is not None and before is not None:
        raise ClusterError(changed(component, declared, before, count))
    return count


def _is_part(name: Any) -> bool:
    """Return True for a part of windows, and not for the tuples in it."""
    form = marshal.loads(name.form) if type(name) is Spelling else name
    return bool(form[0] == PART and len(form) == 3)


# ---- in the first task that comes ----


def deal(
    context: TopologyContext, reads: Sequence[Read], declared: Declaration | None = None, *, drops: bool = False,
    full: bool = False,
) -> int:
    """Have the state of a task's component belong to as many tasks as it has now, and open windows be as declared now.
    Returns how many windows this has dropped. ClusterError if it cannot be, and nothing is changed."""
    if context.state_root is None:
        return 0
    component, root = context.component_id, Path(context.state_root)
    tasks, dealt = len(context.component_tasks(component)), _dealt(root, component)
    own = root / f"{component}-{context.task_index}" / STORE_FILE
    new = dealt.with_name(f"{dealt.name}.new")
    is_as_now = tasks_of(own) == tasks and not _declared_otherwise([own], declared)
    if is_as_now and not dealt.exists() and not new.exists():
        return 0
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(root):  # other tasks, of this process too, wait
        shutil.rmtree(new, ignore_errors=True)
        if dealt.exists():
            _finish(dealt, component, full)
        stores = stores_of(root, component)
        others, made_by = _declared_otherwise(stores, declared), _made_by(component, stores)
        dropped = _open_windows(component, others, declared, drops)
        if declared is not None:
            _drop(others, component, declared, full)
        if made_by not in (None, tasks):
            division = Division(component, tasks, made_by, reads, _windows_of(stores), context.text_hash)
            _build(dealt, division, stores, full)
            _finish(dealt, component, full)
        return dropped


def _dealt(root: Path, component: str) -> Path:
    """Where the new stores are from the rename until they are in their places."""
    return root / f"{component}-dealt"


def _drop(stores: Sequence[Path], component: str, declared: Declaration, full: bool) -> None:
    """Remove the windows that are open."""
    for path in stores:
        names = [name for name in names_of(path) if name != TIME_KEY]
        with _opened(path.parent, component, full) as store, store.changing():
            store.append(1 + max((number for number, _ in store.log()), default=-1), dict.fromkeys(names, GONE))
            store.put_meta(WINDOWS, declared.packed)


def _opened(directory: Path, component: str, full: bool) -> contextlib.closing[TaskStore]:
    directory.mkdir(mode=0o700, exist_ok=True)
    return contextlib.closing(TaskStore(str(directory), f"{component}[{directory.name}]", full))


def _build(dealt: Path, division: Division, stores: Sequence[Path], full: bool) -> None:
    """Make the stores of the new tasks, beside those of the old ones."""
    new = dealt.with_name(f"{dealt.name}.new")
    new.mkdir(mode=0o700)
    component = division.component
    with contextlib.ExitStack() as stack:
        # Opened to be written, so that nobody else does.
        old = [(task_of(path), stack.enter_context(_opened(path.parent, component, full))) for path in stores]
        made = [stack.enter_context(_opened(new / str(index), component, full)) for index in range(division.tasks)]
        for store in made:
            store.begin()
        if division.windows is not None and not division.windows.key:
            _deal_panes(division, old, made)
        else:
            _deal_state(division, old, made)
        _deal_time(old, made)
        _deal_groups(old, made)
        _deal_rest(division, old, made)
        for store in made:
            store.end()
    if full:
        sync(new)
    new.rename(dealt)
    if full:
        sync(dealt.parent)


def _finish(dealt: Path, component: str, full: bool) -> None:
    """Put the new stores in the places of the old ones."""
    found = sorted(int(path.name) for path in dealt.iterdir())
    for index in found:
        with (
            _opened(dealt / str(index), component, full) as source,
            _opened(dealt.with_name(f"{component}-{index}"), component, full) as target,
        ):
            target.become(source)
    for directory in directories_of(dealt.parent, component):
        if int(directory.name.rpartition("-")[2]) not in found:
            for name in (STORE_FILE, f"{STORE_FILE}-wal", f"{STORE_FILE}-shm", LOCK_FILE):
                (directory / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the user's bolt has files of its own there
                directory.rmdir()
    new = dealt.with_name(f"{dealt.name}.new")
    dealt.rename(new)
    if full:
        sync(dealt.parent)
    shutil.rmtree(new)


Stores = Sequence[tuple[int, TaskStore]]


def _deal_state(division: Division, old: Stores, made: Sequence[TaskStore]) -> None:
    """Deal the keys."""
    for index, store in old:
        newer = dict(item for _, changes in store.log() for item in changes.items())
        rows = (
            (read_key(unpack_row(*row[:2])[0], store.where), row)
            for row in store.rows("SELECT key, value, at FROM state")
        )
        while some := list(islice(rows, _AT_ONCE)):
            shares: dict[int, list[tuple[Any, ...]]] = {}
            for name, row in some:
                if name not in newer and (owner := division.new_owner(name, index)) is not None:
                    shares.setdefault(owner, []).append(row)
            for owner, share in shares.items():
                made[owner].write("INSERT INTO state VALUES (?, ?, ?)", share)
        for name, value in newer.items():
            if value is not GONE and (owner := division.new_owner(name, index)) is not None:
                made[owner].put([(name, value)])


def _deal_panes(division: Division, old: Stores, made: Sequence[TaskStore]) -> None:
    """Deal the tuples of windows without a key, by what each is grouped by."""
    windows = division.windows
    assert windows is not None
    rows: dict[tuple[int, int], list[Row]] = {}
    fired: set[Any] = set()
    for index, store in old:
        state = State(store, 0)
        names = [name for name in state if name[0] == PART]
        if not names:
            continue
        if windows.kind != TIME or not windows.keeps_tuples:
            raise division.refused("its open windows have no key and are sessions, by count, or folded: let them end")
        fired.add((state.get((KEY, None)) or (None, 0))[0])
        for name in sorted(name for name in names if len(name) == 4):
            for row in state[name]:
                rows.setdefault((division.new_owner_of_row(row, index), name[2]), []).append(row)
    if len(fired) > 1 and windows.slide != windows.length:
        raise division.refused("its open windows slide, have no key, and have come to different times: let them end")
    for (owner, number), its in rows.items():
        made[owner].put(
            (key, pack_value(key, value)) for key, value in (
                ((PART, None, number), (number, 0, None)), ((PART, None, number, 0), its),
                ((KEY, None), (min(fired, default=None) if None not in fired else None, 0)),
            )
        )


def _deal_groups(old: Stores, made: Sequence[TaskStore]) -> None:
    """Have each task know what any has absorbed."""
    groups = chain.from_iterable(store.rows("SELECT content FROM absorbed ORDER BY number") for _, store in old)
    for number, (content,) in enumerate(groups):
        for store in made:
            store.write("INSERT INTO absorbed VALUES (?, ?)", [(number, content)])


def _deal_time(old: Stores, made: Sequence[TaskStore]) -> None:
    """Have each task know what any knows of event time."""
    known = [time for time in (State(store, 0).get(TIME_KEY) for _, store in old) if time]
    if known:
        times, marks = dict[int, int](), dict[int, list[tuple[int, int]]]()
        for one in known:
            for partition, time in one["times"].items():
                times[partition] = max(time, times.get(partition, time))
            for partition, its in one["marks"].items():
                marks.setdefault(partition, []).extend(its)
        rising = {
            partition: list(accumulate(sorted(its), lambda one, other: (other[0], max(one[1], other[1]))))
            for partition, its in marks.items()
        }
        kept = {"watermark": max(one["watermark"] for one in known), "times": times, "marks": rising}
        for store in made:
            store.put([(TIME_KEY, pack_value(TIME_KEY, kept))])


def _deal_rest(division: Division, old: Stores, made: Sequence[TaskStore]) -> None:
    """Deal what is no key: results and rows that wait to leave, and what a store says of itself."""
    first = old[0][1]
    clocks = [clock for clock in (store.meta(CLOCK) for _, store in old) if clock is not None]
    said = {
        **{name: first.meta(name) for name in ("shape", "path_bits", "spouts", WINDOWS)}, "tasks": division.tasks,
        DEALT: division.made_by if division.tasks > 1 else None,
        CLOCK: max(clocks, key=lambda packed: pickle.loads(packed)[0], default=None),
    }
    for store in made:
        store.commits = 1 + max(each.commits for _, each in old)  # more than any in whose place it comes
        for name, value in said.items():
            if value is not None:
                store.put_meta(name, value)
    for index, store in old:
        heir, outside = made[index % division.tasks], store.meta(OUTSIDE)
        results = store.rows("SELECT origin, number, content FROM results ORDER BY place")
        heir.write("INSERT INTO results (origin, number, content) VALUES (?, ?, ?)", results)
        if outside is not None and index < division.tasks:
            heir.put_meta("id", store.id)
            heir.put_meta(OUTSIDE, outside)
        elif outside is not None:
            heir.put_meta(f"{OUTSIDE} {store.id}", pickle.dumps((index, store.id, outside), 5))
        others = store.rows(f"SELECT name, value FROM meta WHERE name LIKE '{OUTSIDE} %'")
        heir.write("INSERT INTO meta VALUES (?, ?)", others)
