"""A Redis server for tests, with a port and a directory of its own; nothing is left of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import redis

from tests.process.ports import free_ports
from tests.servers.program import Program, started

PASSWORD = "red-herring"


class RedisServer(Program):
    """A server that writes everything to its disk."""

    def __init__(self, directory: Path) -> None:
        [self.port] = free_ports(1)
        super().__init__(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--requirepass", PASSWORD,
             "--dir", directory, "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
            directory, self._answers_to_ping,
        )

    @property
    def url(self) -> str:
        return f"redis://:${{REDIS_PASSWORD}}@127.0.0.1:{self.port}/0"

    def _answers_to_ping(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), self.client() as client:
            return bool(client.ping())
        return False

    def client(self) -> redis.Redis:
        """For a test's own requests; to be closed."""
        return redis.Redis("127.0.0.1", self.port, password=PASSWORD, decode_responses=True)


def running() -> contextlib.AbstractContextManager[RedisServer]:
    """Start one; nothing is left of it."""
    return started(RedisServer, "redis")
