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
import psutil
from pika.adapters.blocking_connection import BlockingChannel

from tests.needs import require
from tests.process.ports import free_ports
from tests.process.waiting import wait_for

PASSWORD = "rabbit-hole"
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{port}
default_user = squall
default_pass = {password}
disk_free_limit.absolute = 10MB
max_message_size = 1000000
vm_memory_high_watermark.absolute = 512MB
"""


class Broker:
    """A server that can be killed, and started again on the same directory."""

    def __init__(self, directory: Path) -> None:
        self.port, self._dist_port, self._names_port = free_ports(3)
        self._directory = directory
        self._parent: subprocess.Popen[str] | None = None
        self._server: int | None = None
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +S 2",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server
            "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", "/nowhere"),  # tells tests.leaks whose it is
        }

    @property
    def url(self) -> str:
        return f"amqp://squall:${{RABBIT_PASSWORD}}@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self._parent is not None
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        self._server = int(self._parent.stdout.readline())
        wait_for(f"RabbitMQ, of which {self._directory / 'output'} tells", self._answers)

    def _answers(self) -> bool:
        assert self._server is not None
        assert not has_ended(self._server), (self._directory / "output").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._server is not None and not has_ended(server := self._server):
            os.kill(server, signal.SIGKILL)
            wait_for("the end of RabbitMQ", lambda: has_ended(server))

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """For a test's own requests."""
        user = pika.PlainCredentials("squall", PASSWORD)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=user)) as connection:
            yield connection.channel()

    @contextlib.contextmanager
    def parents(self) -> Iterator[None]:
        """Run the processes that live longer than the server: Erlang's name service, of which it would start one that
        stays, and its parent, so that a server that is started again is no new process of a test."""
        names = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(self._names_port)], env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        script = 'while read -r _; do "$0" </dev/null >>output 2>&1 & echo $!; done; wait'
        self._parent = subprocess.Popen(
            ["sh", "-c", script, program()], env=self._environment, cwd=self._directory, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        try:
            yield
        finally:
            self.kill()
            names.kill()
            names.wait()
            self._parent.communicate()


def has_ended(pid: int) -> bool:
    """Return True if nobody but a parent knows of it any more."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def program() -> Path:
    """The server's own script: the one on PATH changes the user."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1] if found else Path(str(shutil.which("rabbitmq-server")))


@contextlib.contextmanager
def running() -> Iterator[Broker]:
    """Start a server."""
    require("rabbitmq")
    with tempfile.TemporaryDirectory(prefix="rabbit-") as name:
        broker = Broker(Path(name))
        with broker.parents():
            broker.start()
            yield broker
