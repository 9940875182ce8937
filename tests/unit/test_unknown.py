"""What Nimbus does not know it neither stops nor removes, until an operator says so; nor what it finds damaged: it goes
on as before, or refuses in one line, and alters nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall import ClusterError, SquallError, UsageError
from squall.ipc.board import READY, STOPPED, Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.environment import keep_environment
from squall.scheduler.common.messages import (
    AssignNode,
    ForgetUnknown,
    KillTopology,
    RegisterSupervisor,
    SlotAssignment,
    SlotRef,
    SubmitTopology,
    TopologyRecord,
)
from squall.scheduler.nimbus.store import STORE_FILES, Store
from squall.scheduler.supervisor.node_boards import NodeBoards
from tests.unit.run_dirs import COMPONENTS, NimbusHere, add_topology, files_of, nimbus_in


def registered(service: NimbusHere, holds: dict[int, str]) -> None:
    service.call("register_supervisor", RegisterSupervisor("node-1", [6700, 6701], 1, holds))


def boards_and_code(run_dir: RunDir) -> set[str]:
    return {name for name in files_of(run_dir.path) if name.startswith(("boards/", "code/", "env/"))}


def test_a_store_that_lost_a_topology_costs_it_nothing(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1, os.getpid())
    keep_environment(run_dir, one.id, {})
    for name in STORE_FILES:
        (run_dir.path / name).unlink(missing_ok=True)
    Store(run_dir.nimbus_db).close()  # an operator's copy, which is older
    there = boards_and_code(run_dir)
    with nimbus_in(run_dir.path) as service:
        registered(service, {6700: one.id})
        cluster = service.nimbus.cluster()
        assert (cluster.unknown, cluster.free_slots) == ([one.id], [SlotRef("node-1", 6701)])
        assert service.nimbus.assign_node("node-1").keep == [6700]
        assert there == boards_and_code(run_dir)

        assert service.call("forget_unknown", ForgetUnknown()).ids == [one.id]
        assert service.nimbus.cluster().unknown == service.nimbus.assign_node("node-1").keep == []
        assert service.sent[-1][0] == "supervisor:node-1"
        assert boards_and_code(run_dir) == set()
    with nimbus_in(run_dir.path) as service:
        # It has not stopped yet, and that it is to be removed is known.
        registered(service, {6700: one.id})
        assert service.nimbus.cluster().unknown == []


def test_what_is_left_of_a_deleted_topology_is_removed(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1)
        two = add_topology(run_dir, store, "two", 2)
        store.delete_topology(one.id)
    Board.create(run_dir.board("x-1-00000000"), 1, 1).close()  # on which no worker was begun
    with nimbus_in(run_dir.path) as service:
        assert service.nimbus.cluster().unknown == []
        registered(service, {6700: one.id, 6701: two.id})
        assert service.nimbus.assign_node("node-1").keep == []
        assert [path.name for path in run_dir.boards.iterdir()] == [two.id]
        assert len(list(run_dir.code.iterdir())) == 2


# ---- code of submissions under way ----


def test_nothing_is_swept_while_a_submission_is_under_way(run_dir: RunDir) -> None:
    codes = CodeStore(run_dir.code)
    with codes.held():
        archive = codes.put(b"modules")
        (run_dir.code / f".{archive}.0a0b0c0d").write_bytes(b"half")
        with Store(run_dir.nimbus_db) as store:
            add_topology(run_dir, store, "one", 1)
        with nimbus_in(run_dir.path) as service:
            kill_and_end(service, "one")
            assert archive in codes
            assert (run_dir.code / f".{archive}.0a0b0c0d").exists()
            assert service.next_deadline() is not None
    with nimbus_in(run_dir.path) as service:
        assert service.next_deadline() is None
    assert list(run_dir.code.iterdir()) == []


def kill_and_end(service: NimbusHere, name: str) -> None:
    service.call("kill_topology", KillTopology(name, 0.0))
    service.tick()  # its node is not there to say so: it is seen that no worker lives
    assert service.nimbus.cluster().topologies == []


@pytest.mark.parametrize("file", ["blob", "archive"])
@pytest.mark.parametrize(("content", "error", "words"), [
    (None, UsageError, "is not in the code store"), (b"arch", ClusterError, "is damaged"),
])
def test_a_submission_without_all_its_code_is_refused(
    run_dir: RunDir, file: str, content: bytes | None, error: type[Exception], words: str
) -> None:
    codes = CodeStore(run_dir.code)
    blob, archive = codes.put(b"blob"), codes.put(b"archive")
    request = SubmitTopology("x", {"workers": 1}, COMPONENTS, blob, [str(codes.path(archive)), "lib"], "ACTIVE", False)
    path = codes.path(blob if file == "blob" else archive)
    with codes.held(), Store(run_dir.nimbus_db), nimbus_in(run_dir.path) as service:
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(error, match=words):
            service.call("submit_topology", request)


def test_a_supervisor_maps_the_board_that_was_made_anew(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1, os.getpid())
        [(_, assignment, *_)] = store.topologies()
    assert assignment is not None
    boards, work = NodeBoards(run_dir), SlotAssignment(one, assignment, 0)
    assert boards.admit(work).incarnation == 2
    run_dir.board(one.id).unlink()
    assert boards.admit(work).incarnation == 2
    assert boards.admit(work).state == READY
    with nimbus_in(run_dir.path):
        pass
    # Of the living worker, which ends by itself; its successor has a number of its own.
    assert boards.admit(work).incarnation == 2
    assert boards.admit(work).state == STOPPED
    boards.keep_only(())


# ---- every file of a run directory, one at a time: a bit flipped, cut, removed, while Nimbus is down ----

OTHERS = (
    "key", "lock", "starting", "boards/one-1-0a0b0c0d", "boards/two-2-0a0b0c0d", "n/node-1.sock",
    "n/node-1-6700.worker", "s/node-1-6700-2", "logs/nimbus.log", "logs/one-1-0a0b0c0d/node-1-6700.log",
    "logs/history-node-1.jsonl",
    "state/one/numbers-0/position", "state/one/dead-letters.jsonl", "state/one/.attempts/numbers-0",
    "failures/one-1-0a0b0c0d/slot-0", "metrics/one-1-0a0b0c0d/0-2.json",
)
MAY_BE_MADE_ANEW = ("lock", *STORE_FILES, "nimbus.db.damaged", "nimbus.db-journal.damaged")


@pytest.fixture
def whole() -> Iterator[RunDir]:
    run_dir = RunDir.create()
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1, os.getpid())
        add_topology(run_dir, store, "two", 2)
    for name in OTHERS:
        path = run_dir.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(b"what somebody keeps in " + name.encode())
    assert one.id == "one-1-0a0b0c0d"
    yield run_dir
    run_dir.remove()


def damages(data: bytes, rng: random.Random) -> Iterator[bytes | None]:
    """None: the file is removed."""
    yield None
    yield b""
    yield data[: len(data) // 2]
    for _ in range(2):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        yield data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def started(path: Path) -> tuple[list[TopologyRecord], list[str], AssignNode] | str:
    """What a Nimbus that starts there knows, and wants of the node; or the line it refuses with."""
    try:
        with nimbus_in(path) as service:
            service.nimbus.register_supervisor(RegisterSupervisor("node-1", [6700, 6701], 1, HOLDS), 0.0)
            cluster = service.nimbus.cluster()
            return cluster.topologies, cluster.unknown, service.nimbus.assign_node("node-1")
    except SquallError as error:
        return str(error)


HOLDS = {6700: "one-1-0a0b0c0d", 6701: "two-2-0a0b0c0d"}


def beside(run_dir: RunDir, name: str) -> dict[str, bytes]:
    """All files but this one, and those that may be made anew."""
    return {file: data for file, data in files_of(run_dir.path).items() if file not in (*MAY_BE_MADE_ANEW, name)}


def test_files_beside_the_store(whole: RunDir, seed: int) -> None:
    rng, before, refused = random.Random(seed), started(whole.path), set()
    assert isinstance(before, tuple)
    assert [each.name for each in before[0]] == ["one", "two"]
    for name in OTHERS:
        path, data = whole.path / name, files_of(whole.path)[name]
        for damaged in damages(data, rng) if data else [None]:
            path.unlink() if damaged is None else path.write_bytes(damaged)
            there, now = beside(whole, name), started(whole.path)
            assert beside(whole, name) == there, (name, damaged)
            if isinstance(now, str):
                assert now.count("\n") == 0
                assert str(whole.path) in now
                refused.add(name)
            else:
                assert now == before, (name, damaged)
            path.touch(0o600)
            path.write_bytes(data)
    # A key that is gone is made anew by `squall up`; one that was cut is named.
    assert refused == {"key"}


def test_a_store_that_is_gone_with_its_copy_is_no_empty_one(whole: RunDir) -> None:
    for name in STORE_FILES:
        (whole.path / name).unlink(missing_ok=True)
    there = files_of(whole.path)
    refusal = started(whole.path)
    assert isinstance(refusal, str)
    assert "nimbus.db is missing, though there is" in refusal
    assert files_of(whole.path) | {"lock": b""} == there | {"lock": b""}
