"""A service manager that waits for `squall up` is told when the cluster answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from squall.cli.cluster import tell_ready


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
