"""`squall ps`, and `squall status --watch` in a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import termios
from collections.abc import Iterator

import pytest

from tests.process.cli import ROOT, command, environment, start
from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for

SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standing]:
    with directory() as made:
        made.up(nodes=1, slots=2)
        yield made


@pytest.fixture(autouse=True)
def words(cluster: Standing) -> Iterator[None]:
    cluster.ok("submit", ENDLESS, "--name", "words", "--workers", "2")
    # One of them may be at work before the other is there.
    wait_for("its workers", lambda: [w["state"] for w in cluster.described("words")["workers"]] == ["ready"] * 2)
    wait_for("acks", lambda: cluster.described("words")["acked"] > 0)
    yield
    if "words" in cluster.json("status")["topologies"]:
        cluster.ok("kill", "words", "-w", "0")


def pid_of(cluster: Standing, port: int) -> int:
    (row,) = [row for row in cluster.json("ps")["processes"] if row["port"] == port]
    found: int = row["pid"]
    return found


def test_ps_lists_every_process(cluster: Standing) -> None:
    def seen() -> list[tuple[str, str | None, int | None, str | None]]:
        return [(row["role"], row["node"], row["port"], row["topology"]) for row in cluster.json("ps")["processes"]]

    spare = ("spare", "node-1", None, "words")
    wait_for("the spare", lambda: spare in seen())
    assert seen() == [
        ("keeper", None, None, None), ("nimbus", None, None, None), ("supervisor", "node-1", None, None),
        ("forking parent", "node-1", None, None), ("worker", "node-1", 6700, "words"),
        ("worker", "node-1", 6701, "words"), spare,
    ]
    workers = {row["worker"]: row["pid"] for row in cluster.described("words")["workers"]}
    assert {port: pid_of(cluster, port) for port in (6700, 6701)} == {
        6700: workers["node-1:6700"], 6701: workers["node-1:6701"],
    }
    table = cluster.ok("ps")
    assert len(table.splitlines()) == 8
    assert str(workers["node-1:6700"]) in table
    with cluster.keeper_held():
        cluster.nimbus().kill()
        wait_for("its end", lambda: [role for role, *_ in seen()].count("nimbus") == 0)
    wait_for("the next one", lambda: [role for role, *_ in seen()].count("nimbus") == 1)
    with directory() as nothing:
        assert "there is no cluster at" in nothing.refused(2, "ps")


def test_deaths_and_replacements_are_told_in_a_pipe_until_the_topology_is_gone(cluster: Standing) -> None:
    with start("status", "words", "--watch", "--interval", "0.1", SQUALL_DIR=str(cluster.path)) as watching:
        try:
            assert watching.stdout is not None
            out = watching.stdout
            first = out.readline()
            assert " s, 2 of 2 workers, acked " in first
            assert len(first) <= 100
            os.kill(pid_of(cluster, 6700), signal.SIGKILL)
            wait_for("the death", lambda: out.readline() == "worker node-1:6700 died: killed by SIGKILL\n")
            wait_for("its replacement", lambda: out.readline().startswith("worker node-1:6700 is back, ready after "))
            cluster.ok("kill", "words", "-w", "0")
            # Not `communicate`: `out` may have read the end of it with the line before.
            rest = out.read()
            assert watching.wait(60) == 0
            assert watching.stderr is not None
            assert watching.stderr.read() == ""
        finally:
            watching.kill()
    assert "died" not in rest
    assert rest.count("is gone") == 1


def test_on_a_terminal_the_screen_is_redrawn_and_ctrl_c_leaves_it_as_it_was(cluster: Standing) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(
        command("status", "--watch", "words", "--interval", "0.1"), cwd=ROOT, stdin=theirs, stdout=theirs,
        stderr=subprocess.PIPE, env=environment(SQUALL_DIR=str(cluster.path), TERM="xterm-256color"),
    ) as watching:
        os.close(theirs)
        try:
            shown = bytearray()

            def told(text: bytes) -> bool:
                shown.extend(os.read(ours, 65536))
                return text in shown

            wait_for("the screen", lambda: told(b"\x1b[32mready") and shown.count(b"words is ACTIVE") >= 2)
            os.kill(pid_of(cluster, 6701), signal.SIGKILL)
            wait_for("the death", lambda: told(b"worker node-1:6701 died: killed by SIGKILL"))
            watching.send_signal(signal.SIGINT)
            wait_for("the cursor", lambda: told(SHOW_CURSOR))
            assert watching.wait(60) == 130
        finally:
            watching.kill()
            os.close(ours)
    assert shown.rindex(SHOW_CURSOR) > shown.rindex(HIDE_CURSOR)
