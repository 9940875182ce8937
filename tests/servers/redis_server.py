"""A Redis server for a test, with a port and a directory of its own; nothing is left of it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.needs import require
from tests.process.ports import free_ports
from tests.process.waiting import wait_for

PASSWORD = "red-herring"


class RedisServer:
    """A server that writes everything to its disk, and can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        [self.port] = free_ports(1)
        self._directory = directory
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:${{REDIS_PASSWORD}}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._directory / "output").open("ab") as log:
            self._server = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--requirepass", PASSWORD,
                 "--dir", self._directory, "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        wait_for(f"Redis, of which {self._directory / 'output'} tells", self._answers)

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, (self._directory / "output").read_text()
        with contextlib.suppress(redis.ConnectionError), self.client() as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def client(self) -> redis.Redis:
        """For a test's own requests; to be closed."""
        return redis.Redis("127.0.0.1", self.port, password=PASSWORD, decode_responses=True)


@contextlib.contextmanager
def running() -> Iterator[RedisServer]:
    """Start a server."""
    require("redis")
    with tempfile.TemporaryDirectory(prefix="redis-") as name:
        server = RedisServer(Path(name))
        try:
            server.start()
            yield server
        finally:
            server.kill()
