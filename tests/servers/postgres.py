"""A PostgreSQL server for tests, in a directory of its own, on a Unix socket alone; nothing is left of it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from tests.needs import pg_ctl
from tests.servers.program import Program, started


class PostgresServer(Program):
    """A server that refuses to be root."""

    CRASH = signal.SIGQUIT
    """Killed, it would leave shared memory."""

    def __init__(self, directory: Path) -> None:
        newest = pg_ctl()
        assert newest is not None
        programs, user = newest.parent, None
        if os.getuid() == 0:
            user = "nobody"
            shutil.chown(directory, user)
        self.address = f"host={directory} user=squall connect_timeout=60"
        """For psycopg."""
        self._numbers = itertools.count()
        with (directory / "log").open("wb") as log:
            made = subprocess.run(
                [programs / "initdb", "-D", directory / "data", "-U", "squall", "--auth=trust", "--no-locale",
                 "--encoding=UTF8", "--no-sync"],
                user=user, extra_groups=None if user is None else (), cwd=directory, stdout=log, stderr=log,
            )
        assert made.returncode == 0, (directory / "log").read_text()
        command = [programs / "postgres", "-D", directory / "data", "-k", directory, "-h", ""]
        super().__init__(command, directory, self._lets_in, user=user)

    def _lets_in(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), contextlib.closing(self.connect("postgres")):
            return True
        return False

    def connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(f"{self.address} dbname={database}")

    def new_database(self) -> functools.partial[psycopg.Connection[tuple[Any, ...]]]:
        """Make an empty one; return what connects to it."""
        with contextlib.closing(self.connect("postgres")) as connection:
            connection.autocommit = True
            name = f"test{next(self._numbers)}"
            connection.execute(f"CREATE DATABASE {name}".encode())
        return functools.partial(psycopg.connect, f"{self.address} dbname={name}")

    def restart(self) -> None:
        """As after a crash: whoever is connected is cut off, and what was committed is there."""
        self.kill()
        self.start()


def running() -> contextlib.AbstractContextManager[PostgresServer]:
    """Start one; nothing is left of it."""
    return started(PostgresServer, "postgres")
