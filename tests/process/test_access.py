"""Another user of the machine can neither submit, nor read, nor break anything."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from squall import Config, TopologyBuilder
from tests.process import parts
from tests.process.conftest import SharedCluster

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

Attempts = list[Callable[[], object]]


def as_nobody(attempts: Attempts) -> set[str]:
    """What another user's attempts came to, in a fork: that user may not even be able to start this interpreter."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writer, "\n".join(sorted({_outcome(attempt) for attempt in attempts})).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        outcomes = pipe.read()
    os.waitpid(pid, 0)
    return set(outcomes.splitlines())


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return str(error.strerror)
    return "done"


def _connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_another_user_cannot_reach_anything(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Unending(str(tmp_path)))
    builder.set_bolt("end", parts.Seen(str(tmp_path)), parallelism=2).shuffle_grouping("source")
    mine = shared_cluster.submit("mine", builder.build(), Config(workers=2))
    mine.wait_until_ready(timeout=120)
    run_dir = shared_cluster.run_dir
    files = [path for path in run_dir.path.rglob("*") if path.is_file()]
    sockets = [path for path in run_dir.path.rglob("*") if path.is_socket()]
    directories = [run_dir.path, *(path for path in run_dir.path.rglob("*") if path.is_dir())]
    view = mine.view()
    assert view is not None
    pids = [view.board.slot(index).pid for index in (0, 1)]
    assert run_dir.key_file in files
    assert run_dir.nimbus_socket in sockets
    denied = {"Permission denied"}
    assert as_nobody([partial(os.listdir, "/")]) == {"done"}, "the intruder can do what anybody may"
    assert as_nobody([partial(os.open, path, os.O_RDONLY) for path in files]) == denied
    assert as_nobody([partial(os.open, path, os.O_WRONLY) for path in files]) == denied
    assert as_nobody([partial(os.listdir, path) for path in directories]) == denied
    assert as_nobody([partial(_connect, path) for path in sockets]) == denied
    # Big payloads lie in memory files that are opened through a worker's descriptors.
    assert as_nobody([partial(os.listdir, f"/proc/{pid}/fd") for pid in pids]) == denied
    assert as_nobody([partial(os.kill, pid, signal.SIGKILL) for pid in pids]) == {"Operation not permitted"}
    assert mine.stats().restarts == []
    # These modes do not hang on the directory above: a parent that anybody may enter gives nothing away.
    assert run_dir.path.stat().st_mode & 0o777 == 0o700
    assert run_dir.key_file.stat().st_mode & 0o777 == 0o600
