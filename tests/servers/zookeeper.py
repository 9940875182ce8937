"""A ZooKeeper server for tests, with a port and a directory of its own; nothing is left of it.

Relies on `.ci/bootstrap.sh zookeeper`, which installs it in build/zookeeper, and on a Java.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from tests.process.ports import free_ports
from tests.servers.program import Program, java, started

_CONFIG = """
dataDir={directory}/data
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
tickTime=500
maxSessionTimeout=3000
"""


class ZooKeeperServer(Program):
    """A server that writes everything to its disk."""

    def __init__(self, directory: Path) -> None:
        [self._port] = free_ports(1)
        self.hosts = f"127.0.0.1:{self._port}"
        (directory / "zoo.cfg").write_text(_CONFIG.format(directory=directory, port=self._port))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        super().__init__([*java("zookeeper", 128), main, directory / "zoo.cfg"], directory, self._has_mode)

    def _has_mode(self) -> bool:
        # A client that comes too early may be left without an answer.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0) as asked:
            asked.sendall(b"srvr")
            return b"Mode: " in asked.makefile("rb").read()
        return False


def running() -> contextlib.AbstractContextManager[ZooKeeperServer]:
    """Start one; nothing is left of it."""
    return started(ZooKeeperServer, "zookeeper")
