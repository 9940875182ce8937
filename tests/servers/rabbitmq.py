"""A RabbitMQ server for tests, with ports and a directory of its own; nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.process.ports import free_ports
from tests.servers.program import Program, started

PASSWORD = "rabbit-hole"
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{port}
default_user = squall
default_pass = {password}
disk_free_limit.absolute = 10MB
max_message_size = 1000000
vm_memory_high_watermark.absolute = 512MB
"""


class Broker(Program):
    """A server, and Erlang's name service, of which it would start one that stays."""

    def __init__(self, directory: Path) -> None:
        self.port, dist_port, names_port = free_ports(3)
        (directory / "rabbitmq.conf").write_text(CONFIG.format(port=self.port, password=PASSWORD))
        (directory / "enabled_plugins").write_text("[].\n")
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(directory),  # of the cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names_port),
            "RABBITMQ_NODENAME": "squall@localhost",
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +S 2",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server
            "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", "/nowhere"),  # tells tests.leaks whose it is
        }
        self._names = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(names_port)], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        super().__init__([program()], directory, self._listens, environment=environment)

    @property
    def url(self) -> str:
        return f"amqp://squall:${{RABBIT_PASSWORD}}@127.0.0.1:{self.port}/"

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def close(self) -> None:
        super().close()
        self._names.kill()
        self._names.wait()

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """For a test's own requests."""
        user = pika.PlainCredentials("squall", PASSWORD)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=user)) as connection:
            yield connection.channel()


def program() -> Path:
    """The server's own script: the one on PATH changes the user."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1] if found else Path(str(shutil.which("rabbitmq-server")))


def running() -> contextlib.AbstractContextManager[Broker]:
    """Start one; nothing is left of it."""
    return started(Broker, "rabbitmq")
