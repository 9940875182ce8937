"""A RabbitMQ server for a test, with ports and a directory of its own; nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.process.ports import free_ports
from tests.process.waiting import wait_for

INSTALL = "this test needs RabbitMQ; found no rabbitmq-server: install rabbitmq-server (Debian/Ubuntu)"
PASSWORD = "rabbit-hole"
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{port}
default_user = squall
default_pass = {password}
disk_free_limit.absolute = 10MB
vm_memory_high_watermark.absolute = 512MB
"""


class Broker:
    """A server that can be killed, and started again on the same directory."""

    def __init__(self, directory: Path) -> None:
        self.port, self._dist_port, self._names_port = free_ports(3)
        self._directory = directory
        self._server: subprocess.Popen[bytes] | None = None
        (directory / "rabbitmq.conf").write_text(CONFIG.format(port=self.port, password=PASSWORD))
        (directory / "enabled_plugins").write_text("[].\n")
        self._environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(directory),  # of the cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names_port),
            "RABBITMQ_NODENAME": "squall@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server
            "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],  # by which tests.leaks knows our processes
        }

    @property
    def url(self) -> str:
        return f"amqp://squall:${{RABBIT_PASSWORD}}@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = (self._directory / "output").open("ab")
        with log:
            self._server = subprocess.Popen(
                [program()], env=self._environment, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )
        wait_for(f"RabbitMQ, of which {self._directory / 'output'} tells", self._answers)

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, (self._directory / "output").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """For a test's own requests."""
        user = pika.PlainCredentials("squall", PASSWORD)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=user)) as connection:
            yield connection.channel()

    def names(self) -> subprocess.Popen[bytes]:
        """Start Erlang's name service: the server would start one that stays."""
        return subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(self._names_port)], env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )


def program() -> Path:
    """The server's own script: the one on PATH changes the user."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    on_path = shutil.which("rabbitmq-server")
    assert found or on_path, INSTALL
    return found[-1] if found else Path(str(on_path))


@contextlib.contextmanager
def running() -> Iterator[Broker]:
    """Start a server."""
    program()
    with tempfile.TemporaryDirectory(prefix="rabbit-") as name:
        broker = Broker(Path(name))
        names = broker.names()
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
            names.kill()
            names.wait()
