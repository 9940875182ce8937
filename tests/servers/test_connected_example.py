"""examples/connected: from a log to a page, with a worker and Redis killed on the way."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.process.cli import ROOT, environment
from tests.process.standing_tools import directory
from tests.process.waiting import wait_for
from tests.servers import redis_server
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.xdist_group("redis")
PROGRAMS = ROOT / "examples/connected"
LINE = '127.0.0.1 - - [27/Nov/2026:01:00:00 +0000] "GET /page-{page}?n={number} HTTP/1.1" 200 5\n'
VISITS = 400


def visits(log: Path, first: int) -> None:
    with log.open("a") as file:
        file.writelines(LINE.format(page=number % 7, number=number) for number in range(first, first + VISITS))
        file.write("what is no line of a log\n")


def test_a_log_is_counted_on_a_page(redis: RedisServer, tmp_path: Path) -> None:
    redis.start()
    log, queue = tmp_path / "access.log", tmp_path / "lines"
    visits(log, 0)
    with directory() as cluster:
        cluster.ok("up", "--slots", "4", "--detach")
        cluster.ok("submit", PROGRAMS / "collect.py", "--name", "collect", "--", log, queue)
        cluster.ok("submit", PROGRAMS / "count.py", "--name", "count", "--", queue, redis.url)
        url = redis.url.replace("${REDIS_PASSWORD}", redis_server.PASSWORD)
        page = subprocess.Popen(
            [sys.executable, PROGRAMS / "page.py", url, "0"], env=environment(), stdout=subprocess.PIPE, text=True
        )
        try:
            assert page.stdout is not None
            address = page.stdout.readline().strip()

            def shown() -> dict[str, int]:
                with urllib.request.urlopen(address, timeout=60) as answer:
                    found = re.findall(r"<tr><td>([^<]*)<td>(\d+)", answer.read().decode())
                return {name: int(count) for name, count in found}

            wait_for("all visits", lambda: sum(shown().values()) == VISITS)
            redis.kill()
            cluster.ok("inject", "kill", "node-1:6701")
            visits(log, VISITS)
            redis.start()
            expected = {f"/page-{page}": len(range(page, 2 * VISITS, 7)) for page in range(7)}
            wait_for("the rest", lambda: shown() == expected)
        finally:
            page.kill()
            page.communicate()
