"""What topologies that are gone have left: listed, and removed when asked; no dead letter is lost unsaid."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall import ClusterError
from squall.ipc.board import READY, Board
from squall.ipc.run_parent import default_parent
from squall.ipc.rundir import LETTER_REQUESTS, RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.nimbus.nimbus_files import NimbusFiles
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records import topology_files as records
from squall.scheduler.records.dead_letters import LEDGER
from squall.scheduler.records.topology_files import keep_dead_letters, topology_files

HERE = TopologyRecord("here-2-00000000", "here", "ACTIVE", {}, [], "", [], 0.0)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "run")
    for topology_id in ("here-1-00000000", HERE.id, "gone-3-00000000"):
        made.worker_logs(topology_id).mkdir(parents=True)
        (made.worker_logs(topology_id) / "node-1-6700.log").write_text("x" * 2000)
    for name in ("here", "gone", "letters", "asked"):
        (made.topology_state(name) / "one-0").mkdir(parents=True)
    (made.logs / "nimbus.log").write_text("")
    # A line that cannot be read may be a letter, too.
    (made.topology_state("letters") / LEDGER).write_bytes(b"?\n")
    for name in ("asked", "gone"):  # the second has had all of its letters back
        (made.topology_state(name) / LETTER_REQUESTS / "spout-0").mkdir(parents=True)
    (made.topology_state("asked") / LETTER_REQUESTS / "spout-0" / "one").touch()
    return made


def test_what_is_in_the_cluster_is_not_listed(run_dir: RunDir) -> None:
    found = {(one.name, one.kind): one for one in topology_files(run_dir, [HERE])}
    assert {key: one.dead_letters for key, one in found.items()} == {
        ("here", "logs"): 0, ("gone", "logs"): 0, ("gone", "state"): 0, ("letters", "state"): 1, ("asked", "state"): 1,
    }
    assert found["here", "logs"].path == run_dir.worker_logs("here-1-00000000")
    assert found["gone", "logs"].bytes == 2000
    found["gone", "state"].remove()
    assert not run_dir.topology_state("gone").exists()
    assert run_dir.topology_state("here").is_dir()


def test_directories_of_others_are_not_listed(run_dir: RunDir) -> None:
    before = {one.path for one in topology_files(run_dir, [HERE])}
    for name in ("my-old-logs", "gone-3-0000000g", "..dots", "new\nline-1-00000000", "backup.tar"):
        (run_dir.logs / name).mkdir()
    for name in ("..dots", "new\nline", "backup.tar", "a:b", "a\\b"):
        (run_dir.states / name).mkdir()
    (run_dir.states / "a link").symlink_to(run_dir.logs)
    assert {one.path for one in topology_files(run_dir, [HERE])} == before


def test_a_name_that_is_no_file_name_is_known_by_its_files(run_dir: RunDir) -> None:
    record = replace(HERE, id="50% a/b-4-00000000", name="50% a/b")
    for topology_id in (record.id, "c%d-5-00000000"):
        Board.create(run_dir.board(topology_id), n_slots=1, n_tasks=1).set_slot(0, 1, READY, os.getpid())
    life = TopologyLife(record, Assignment(record.id, 1, [], []))
    assert NimbusFiles(run_dir).tidy([life], ()) == {"c%d-5-00000000"}
    run_dir.topology_state(record.name).mkdir()
    assert "50% a/b" in {one.name for one in topology_files(run_dir, [HERE])}
    assert "50% a/b" not in {one.name for one in topology_files(run_dir, [HERE, record])}


def test_a_file_inside_tells_when_it_was_changed(run_dir: RunDir) -> None:
    log = run_dir.worker_logs("gone-3-00000000") / "node-1-6700.log"
    os.utime(log, (4e9, 4e9))
    (found,) = (one for one in topology_files(run_dir, [HERE]) if one.path == log.parent)
    assert found.changed_unix_secs == 4e9


def test_no_submission_is_under_way_meanwhile(run_dir: RunDir) -> None:
    store = CodeStore(run_dir.code)
    refused = pytest.raises(ClusterError, match="a topology is being submitted just now; try again")
    with store.held(), refused, store.alone():
        pass
    with store.alone():
        assert not store.keep_only([])


def test_dead_letters_are_kept_where_there_is_room(
    run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, room = tmp_path / "file", default_parent()
    file.write_text("")
    monkeypatch.setattr(records, "durable_parents", lambda: [file / "no", file])
    assert keep_dead_letters(run_dir, "letters", copy=False) == (run_dir.path, 1)
    kept = keep_dead_letters(run_dir, "letters", copy=True)
    assert kept is not None
    path, count = kept
    assert (path.parent, count) == (room, 1)
    copied = RunDir.open(path)
    assert (copied.topology_state("letters") / LEDGER).read_bytes() == b"?\n"
    copied.remove()
    monkeypatch.setattr(records, "default_parent", lambda: file)
    with pytest.raises(ClusterError, match="Not a directory"):
        keep_dead_letters(run_dir, "letters", copy=True)
