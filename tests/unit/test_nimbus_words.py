"""The last words of a Nimbus reach the commands that wait for one, wherever its stderr went."""

from __future__ import annotations

import errno
import os

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.why_away import why_away
from squall.scheduler.nimbus.store import StoreError
from squall.scheduler.records.nimbus_words import forget_words, leaving_words, words_of


def fail(run_dir: RunDir, text: str) -> None:
    with pytest.raises(ClusterError, match="damaged"), leaving_words(run_dir):
        raise StoreError(text)


def test_they_are_of_the_last_one_and_go_when_another_serves(run_dir: RunDir) -> None:
    assert why_away(run_dir) == ""
    fail(run_dir, "nimbus.db is damaged, by somebody or other")
    fail(run_dir, "nimbus.db is damaged")
    assert why_away(run_dir) == words_of(run_dir) == "nimbus.db is damaged"
    assert run_dir.nimbus_words.stat().st_mode & 0o077 == 0
    forget_words(run_dir)
    forget_words(run_dir)
    assert why_away(run_dir) == ""


def test_any_error_has_some(run_dir: RunDir) -> None:
    with pytest.raises(OSError, match="No space"), leaving_words(run_dir):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "boards/one")
    assert why_away(run_dir) == "OSError: [Errno 28] No space left on device: 'boards/one'"
    with pytest.raises(AssertionError), leaving_words(run_dir):
        raise AssertionError
    assert why_away(run_dir) == "AssertionError"


def test_they_are_one_plain_line(run_dir: RunDir) -> None:
    fail(run_dir, "damaged\n\x1b[2J")
    assert len(words_of(run_dir).splitlines()) == 1
    assert "\x1b" not in words_of(run_dir)


def test_without_a_place_the_error_is_still_the_error(run_dir: RunDir) -> None:
    run_dir.nimbus_words.mkdir()
    fail(run_dir, "nimbus.db is damaged")
    run_dir.nimbus_words.rmdir()


def test_a_nimbus_that_serves_keeps_room_for_them(run_dir: RunDir) -> None:
    """Without a block more: a full disk may be what ends it."""
    forget_words(run_dir)
    kept = run_dir.nimbus_words.stat()
    fail(run_dir, "nimbus.db is damaged: the disk is full")
    assert words_of(run_dir) == "nimbus.db is damaged: the disk is full"
    written = run_dir.nimbus_words.stat()
    assert (written.st_ino, written.st_blocks) == (kept.st_ino, kept.st_blocks)
    assert kept.st_blocks > 0


def test_words_without_end_are_cut(run_dir: RunDir) -> None:
    fail(run_dir, "damaged " + "x" * 100_000)
    assert words_of(run_dir).startswith("damaged xxx")
    assert len(words_of(run_dir)) <= 4096
