"""A ZooKeeper server for a test, with a port and a directory of its own; nothing is left of it.

Relies on `.ci/bootstrap.sh zookeeper`, which installs it in build/zookeeper, and on a Java.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.needs import require
from tests.process.ports import free_ports
from tests.process.waiting import wait_for

JARS = Path(__file__).parents[2] / "build" / "zookeeper"
_CONFIG = """
dataDir={directory}/data
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
tickTime=2000
"""


class ZooKeeperServer:
    """A server that writes everything to its disk, and can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        [self._port] = free_ports(1)
        self.hosts = f"127.0.0.1:{self._port}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "zoo.cfg").write_text(_CONFIG.format(directory=directory, port=self._port))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*", main,
                 self._directory / "zoo.cfg"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory,
            )
        wait_for(f"ZooKeeper, of which {self._directory / 'log'} tells", self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()
        # A client that comes too early may be left without an answer.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0) as asked:
            asked.sendall(b"srvr")
            return b"Mode: " in asked.makefile("rb").read()
        return False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. What it has acknowledged is there again after `start`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def made() -> Iterator[ZooKeeperServer]:
    """Make a server that is not started yet."""
    require("zookeeper")
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as name:
        server = ZooKeeperServer(Path(name))
        try:
            yield server
        finally:
            server.kill()
