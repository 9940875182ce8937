"""A PostgreSQL server for a test, in a directory of its own, on a Unix socket alone; nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.needs import pg_ctl, require


class Server:
    """A server that runs."""

    def __init__(self, programs: Path, directory: Path, user: str | None) -> None:
        self._programs, self._directory, self._user = programs, directory, user
        self.address = f"host={directory} user=squall dbname=postgres connect_timeout=60"
        """For psycopg."""

    def call(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs for this server's data."""
        command = [self._programs / program, "-D", self._directory / "data", *arguments]
        # Into a file: a server that was started keeps it.
        with (self._directory / "log").open("ab") as log:
            done = subprocess.run(
                command, user=self._user, extra_groups=None if self._user is None else (), cwd=self._directory,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=120,
            )
        assert done.returncode == 0, (self._directory / "log").read_text()

    def restart(self) -> None:
        """As after a crash: whoever is connected is cut off, and what was committed is there."""
        self.call("pg_ctl", "restart", "-m", "immediate")


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Make a server, which refuses to be root."""
    require("postgres")
    programs, user = pg_ctl().parent, "nobody" if os.getuid() == 0 else None
    # Short, because paths of sockets end at 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        directory = Path(name)
        if user is not None:
            shutil.chown(directory, user)
        server = Server(programs, directory, user)
        server.call("initdb", "-U", "squall", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync")
        try:
            server.call("pg_ctl", "start", "-o", f"-k {directory} -h ''")
            yield server
        finally:
            if (directory / "data" / "postmaster.pid").exists():
                server.call("pg_ctl", "stop", "-m", "immediate")
