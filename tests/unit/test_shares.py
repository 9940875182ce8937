"""Sharing a feed among tasks: whichever die whenever, every row is acked, and no position passes a row that is not.
State that goes by what the tasks have settled counts each row once."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.state.records.floors import NOTHING, FollowedSpout
from squall.engine.state.records.lineage import NUMBER_BITS, PartitionNumbers
from squall.engine.state.records.record_store import RecordStore
from squall.engine.state.records.settled import DENSE, Settling
from squall.pipeline.feed.shares import Claim, Part, Range, RowId, Shares

# By their names, they are in another order.
PARTS = [Part("z", 0, 0, 7), Part("b", 0, 7, 4), Part("a", 0, 11, 4), Part("empty", 1, 0, 0), Part("c", 2, 0, 1)]
MORE = [Part("A", 2, 1, 5), Part("e", "e", 0, 3)]
RANGE_ROWS = 3
LOW = (1 << NUMBER_BITS) - 1


class Life:
    """One life of a task: what it decides, and what it has emitted. It dies by being forgotten."""

    def __init__(self, world: World, task: int) -> None:
        self.world = world
        self.shares = Shares(task, world.tasks, RANGE_ROWS)
        assert self.shares.resume(world.disk.values(), world.parts) == []
        self.shares.learn(world.parts, spread=world.spread)
        self.learned = len(world.parts)
        self.settling = Settling("", DENSE, task, PartitionNumbers(0, 1), world.records)
        self.unacked: dict[RowId, int] = {}
        """With their identities."""
        self.range: Range | None = None
        self.row = 0

    def read(self) -> bool:
        """Emit a row, or take a range; False at the end of all that is known."""
        if self.range is None or self.row == self.range.stop:
            if self.learned < len(self.world.parts):
                self.shares.learn(self.world.parts[self.learned :], spread=False)
                self.learned = len(self.world.parts)
            return self.take()
        row = (self.range.part.partition, self.range.part.first + self.row)
        assert row not in self.unacked, "emitted twice at a time"
        self.unacked[row] = 0 if self.world.haunted else self.settling.emitted(row, (), "")
        self.row += 1
        self.shares.read(self.range, self.row)
        return True

    def take(self) -> bool:
        taken = self.shares.to_resume()
        if taken is None:
            free = self.shares.to_claim()
            if free is None:
                return False
            taken = self.shares.claimed(free[0], self.world.claim(free[1]))
        if taken is not None:
            self.range, self.row = taken
        return True

    def ack(self, index: int, acked: bool = True) -> None:
        """A row reaches the bolt; `acked`: and is acked."""
        if self.unacked:
            row = list(self.unacked)[index % len(self.unacked)]
            if not self.world.haunted:
                self.world.count(row, self.unacked[row])
            if acked:
                del self.unacked[row]
                self.world.acked.add(row)
                self.settling.answered(row)

    def commit(self) -> None:
        self.world.records.tell("busy", None, self.settling.progress(0))
        self.world.spout.look()
        for claim in self.shares.risen(self.unacked):
            self.world.store(claim, self.shares.task)
            self.shares.stored(claim)


class World:
    """The tasks of a spout, and the claims on disk: all that survives."""

    def __init__(self, tasks: int, spread: bool, parts: list[Part] = PARTS) -> None:
        self.tasks, self.spread = tasks, spread
        self.parts = list(parts)
        self.disk: dict[tuple[str, int], Claim] = {}
        self.acked: set[RowId] = set()
        self.directory = tempfile.TemporaryDirectory()
        self.records = RecordStore(self.directory.name, "feed")
        self.spout = FollowedSpout(self.directory.name, PartitionNumbers(0, 1), tasks)
        self.counted: Counter[RowId] = Counter()
        self.seen: set[int] = set()
        """Identities of rows that were counted and are not settled."""
        self.lives = [Life(self, task) for task in range(tasks)]
        self.ghosts: list[Life] = []
        """Lives that have been replaced, and are not dead yet."""
        self.haunted = False

    def count(self, row: RowId, identity: int) -> None:
        """As state does."""
        self.seen = {one for one in self.seen if not self.settles(one)}
        if identity not in self.seen and not self.settles(identity):
            self.counted[row] += 1
            self.seen.add(identity)

    def settles(self, identity: int) -> bool:
        return self.spout.settled.get(identity >> NUMBER_BITS, NOTHING).settles(identity & LOW)

    def close(self) -> None:
        self.records.close()
        self.spout.reader.close()
        self.directory.cleanup()

    def claim(self, claim: Claim) -> Claim:
        return self.disk.setdefault((claim.part, claim.start), claim)

    def store(self, claim: Claim, task: int) -> None:
        key = claim.part, claim.start
        assert self.disk[key].task == claim.task == task, "stored by another task than the one that claimed it"
        part = next(part for part in self.parts if part.name == claim.part)
        rows = {(part.partition, part.first + row) for row in range(claim.start, claim.position)}
        assert rows <= self.acked, "a position passed a row that is not acked"
        self.disk[key] = claim

    def do(self, what: str, which: int, index: int) -> None:
        life = [*self.lives, *self.ghosts][which % (self.tasks + len(self.ghosts))]
        match what:
            case "read" | "ack" | "commit":
                life.read() if what == "read" else life.ack(index) if what == "ack" else life.commit()
            case "process":
                life.ack(index, acked=False)
            case "die":
                self.replace(which)
            case "die at a claim":
                if (free := self.lives[which % self.tasks].shares.to_claim()) is not None:
                    self.claim(free[1])
                self.replace(which)
            case "seem dead":
                self.ghosts.append(self.lives[which % self.tasks])
                self.haunted = True
                self.replace(which)
            case "grow":
                self.parts += MORE[len(self.parts) - len(PARTS) :][:1]

    def replace(self, which: int) -> None:
        self.lives[which % self.tasks] = Life(self, which % self.tasks)

    def finish(self) -> None:
        """No more deaths: everything must be done."""
        self.ghosts.clear()
        for life in reversed(self.lives):  # the last one begins in the middle
            while life.read():
                pass
        for life in self.lives:
            while life.unacked:
                life.ack(-1)
            life.commit()
            assert life.shares.risen(()) == []
        rows = {(part.partition, part.first + row) for part in self.parts for row in range(part.rows)}
        assert self.acked == rows, "rows were lost"
        # A life that seems dead keeps the store of its state: its successor waits for it, in spouts before state.
        assert self.haunted or self.counted == Counter(rows), "not every row was counted once"
        # A life that seemed dead may have lowered a position after the next one was done: that costs time, no row.
        assert self.haunted or all(claim.position == claim.stop for claim in self.disk.values())
        covered = sorted((claim.part, row) for claim in self.disk.values() for row in range(claim.start, claim.stop))
        assert covered == sorted((part.name, row) for part in self.parts for row in range(part.rows))


KINDS = ["read", "read", "read", "ack", "ack", "process", "commit", "die", "die at a claim", "seem dead", "grow"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)), max_size=80)


@given(st.integers(1, 3), st.booleans(), st.booleans(), STEPS)
def test_every_row_is_acked_whoever_dies(
    tasks: int, spread: bool, haunted: bool, steps: list[tuple[str, int, int]]
) -> None:
    world = World(tasks, spread)
    for what, which, index in steps:
        world.do("die" if what == "seem dead" and not haunted else what, which, index)
    world.finish()
    world.close()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(*request.param)
    yield made
    made.close()


FOUR = [Part(name, number, 0, 6) for number, name in enumerate("abcd")]


@pytest.mark.parametrize("world", [(2, True, FOUR)], indirect=True)
def test_tasks_begin_at_different_parts_and_help_each_other_at_the_end(world: World) -> None:
    first, *second = world.lives[0], *[world.lives[1]] * 6
    for life in (first, *second):
        life.take()
    own = [("c", 0, 1), ("d", 0, 1), ("c", 3, 1), ("d", 3, 1)]
    assert [(*key, claim.task) for key, claim in world.disk.items()] == [("a", 0, 0), *own, ("a", 3, 1)]


IN_TURN = [Part("a", 0, 0, 6), Part("a2", 0, 6, 2), Part("b", 1, 0, 6), Part("c", 2, 0, 2)]


@pytest.mark.parametrize("world", [(1, False, IN_TURN)], indirect=True)
def test_a_task_takes_ranges_of_its_partitions_in_turn(world: World) -> None:
    [life] = world.lives
    unread = []
    while life.take():
        assert life.range
        unread.append(set(life.shares.unread))
        life.shares.read(life.range, life.range.stop)
    assert [*world.disk] == [("a", 0), ("b", 0), ("c", 0), ("a", 3), ("b", 3), ("a2", 0)]
    assert (unread[0], unread[-1]) == ({0, 1, 2}, {0})
    assert not life.shares.unread
