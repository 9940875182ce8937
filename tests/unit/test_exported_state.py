"""State as lines of JSON, and files of state that were altered: the same state, or one line that says what is wrong."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.cli.commands import main
from squall.engine.errors import ClusterError, SquallError
from squall.engine.state import keyed
from squall.engine.state.reading import import_rows, read_component, rows_of
from squall.engine.state.task_store import STORE_FILE, TaskStore, pack_value
from squall.ipc.rundir import RunDir
from tests.unit.test_keyed_state import KEY, VALUES, Kept

ROW = {"component": "count", "task": 1, "tasks": 2, "key": "a", "value": 1}


def stored(root: Path, items: dict[Any, Any], task: int = 0, tasks: int = 2) -> None:
    directory = root / f"count-{task}"
    directory.mkdir(parents=True)
    with contextlib.closing(TaskStore(str(directory), "count")) as store, store.changing():
        store.append(0, {key: pack_value(key, value) for key, value in items.items()})
        store.put_meta("tasks", tasks)


def lines_of(root: Path) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows_of(root, None)]


@given(st.dictionaries(KEY, VALUES, max_size=4))
def test_what_is_exported_and_imported_is_the_same_state(items: dict[Any, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        one, other = Path(place, "one"), Path(place, "other")
        stored(one, items, task=1)
        assert import_rows(other, lines_of(one)) == len(items)
        if items:
            assert repr(read_component(other, "count")) == repr(read_component(one, "count"))
        assert lines_of(other) == lines_of(one)


def test_plain_values_are_readable_in_an_export(tmp_path: Path) -> None:
    items = {"a": {"seen": [1, [2.5, None]], "": {}}, 1: "one"}
    stored(tmp_path, items)
    assert {row["key"]: row["value"] for row in rows_of(tmp_path, None)} == items


def test_a_number_that_is_too_long_for_json_is_exported_too(tmp_path: Path) -> None:
    stored(tmp_path / "one", items := {10**5000: [10**5000]})
    import_rows(tmp_path / "other", lines_of(tmp_path / "one"))
    assert read_component(tmp_path / "other", "count") == items


@pytest.mark.parametrize(("wrong", "named"), [
    ({"component": "../../x"}, "there is no task 1 of 2 of '../../x'"), ({"task": 2}, "there is no task 2 of 2"),
    ({"task": -1}, "there is no task -1 of 2"), ({"task": 0, "tasks": 3}, "was made by 2 tasks, and count has 3 now"),
    ({"key": [1]}, r"line 2 set state\[\[1\]\]"), ({"value": {"pickle": "?"}}, "line 2 is no row"),
    (b"PAR1\x15\x04\xff\xfe", "line 2 is no row"),
])
def test_a_wrong_line_is_named_and_nothing_is_changed(wrong: Any, named: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    stored(root, {"b": 2})
    before = lines_of(root)
    line = wrong if isinstance(wrong, bytes) else json.dumps(ROW | wrong).encode()
    with pytest.raises(SquallError, match=f"line 2 is no row as squall state --export writes it: .*{named}|{named}"):
        import_rows(root, [json.dumps(ROW).encode(), line])
    assert lines_of(root) == before
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize(("arguments", "told"), [
    (("one", "--export", "/dev/full"), "squall: /dev/full: No space left"), (("two",), "no such topology ran there"),
])
def test_a_full_file_or_a_topology_that_is_not_there_is_named(
    arguments: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(RunDir.create(tmp_path / "run").topology_state("one"), {"a": 1})
    with pytest.raises(SystemExit):
        main(["state", *arguments, "--dir", str(tmp_path / "run")])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["the file", "both", "the log", "a byte of the log"])
def test_a_store_that_lacks_commits_is_refused(lost: str, tmp_path: Path) -> None:
    """SQLite takes an empty file for a new one, and ends its log where that is damaged."""
    with contextlib.closing(Kept(tmp_path)) as its:
        its.commit(a=1)
        file, log = tmp_path / STORE_FILE, tmp_path / f"{STORE_FILE}-wal"
        in_file, in_log = file.read_bytes(), log.read_bytes()
        its.close()
        file.write_bytes(in_file * (lost not in ("the file", "both")))
        damaged = in_log[:-100] + b"?" + in_log[-99:]
        log.write_bytes(damaged if "byte" in lost else in_log * (lost == "the file"))
        with pytest.raises(ClusterError, match="lacks its last"):
            its.open()


def test_a_damaged_key_is_told_with_the_file(tmp_path: Path) -> None:
    with contextlib.closing(Kept(tmp_path)) as its, mock.patch.object(keyed, "KEYS_IN_LOG", 0):
        its.commit(a=1)
        its.commit(b=1)
        with its.store.changing():
            its.store.write("UPDATE state SET key = ?", [(b"\xff",)])
        with pytest.raises(ClusterError, match=r"state.db, the state of count.*, cannot be read: bad marshal data"):
            its.reopened()


def test_a_log_of_large_values_stays_short(tmp_path: Path) -> None:
    with contextlib.closing(Kept(tmp_path)) as its, mock.patch.object(keyed, "BYTES_IN_LOG", 5_000):
        for number in range(100):
            its.commit(a=bytes([number]) * 1_000)
            assert len(list(its.store.log())) < 15
        assert dict(its.reopened()) == {"a": bytes([99]) * 1_000}
