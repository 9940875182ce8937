"""What `squall up --systemd` prints, read as systemd reads it."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from squall.cli.systemd_unit import tell_ready, unit
from squall.engine.errors import UsageError

HOSTILE = ["/tmp/a b", '/tmp/"', "/tmp/%h", "/tmp/$HOME", "/tmp/\\x41", "/tmp/'", "/tmp/ü", "/tmp/;", "/tmp/#"]


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


def words(text: str) -> list[str]:
    """ExecStart as systemd takes it apart: quotes, C's escapes, %% and $$."""
    found: list[str] = []
    rest = text
    while rest := rest.lstrip(" "):
        word = ""
        quoted = rest[0] == '"'
        at = 1 if quoted else 0
        while at < len(rest) and rest[at] != ('"' if quoted else " "):
            if rest[at] == "\\":
                at += 1
            elif rest[at] in "%$":
                assert rest[at + 1] == rest[at], rest
                at += 1
            word += rest[at]
            at += 1
        found.append(word)
        rest = rest[at + 1 :]
    return found


@pytest.mark.parametrize("directory", ["/tmp/plain", *HOSTILE])
def test_the_command_names_the_directory_as_it_is(directory: str) -> None:
    text = unit(2, 3, Path(directory), 12.5)
    found = words(settings(text)["ExecStart"])
    assert found[1:4] == ["-P", "-m", "squall"]
    assert found[4:] == ["up", "--nodes", "2", "--slots", "3", "--wait", "12.5", "--dir", directory]


def test_a_relative_directory_becomes_absolute_and_none_is_left_out() -> None:
    assert words(settings(unit(1, 1, Path("x"), 1))["ExecStart"])[-1] == str(Path.cwd() / "x")
    assert "--dir" not in unit(1, 1, None, 1)


@pytest.mark.parametrize("directory", ["/tmp/a\nExecStart=/bin/false", "/tmp/\x1b[31m", "/tmp/\udcff"])
def test_a_directory_that_no_unit_can_name_is_refused(directory: str) -> None:
    with pytest.raises(UsageError, match="has characters that no systemd unit can name"):
        unit(1, 1, Path(directory), 1)


@pytest.mark.parametrize("secs", [float("inf"), float("nan")])
def test_a_wait_without_an_end_is_refused(secs: float) -> None:
    with pytest.raises(UsageError, match=r"the wait is (inf|nan); allowed: a number of seconds"):
        unit(1, 1, None, secs)


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    """Where the machine has systemd's own check."""
    check = shutil.which("systemd-analyze")
    file = tmp_path / "squall.service"
    file.write_text(unit(1, 1, tmp_path / HOSTILE[2][1:], 30))
    assert settings(file.read_text())["Type"] == "notify"
    if check is not None:
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            [check, "verify", "--user", str(file)], capture_output=True, text=True, env=environment, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_when_the_cluster_answers(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"@{tmp_path.name}-{id(tmp_path)}" if abstract else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind("\0" + name[1:] if abstract else name)
        server.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        tell_ready()
        assert server.recv(64) == b"READY=1"
    # Said once; and nobody who listens no more is waited for.
    tell_ready()
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    tell_ready()
