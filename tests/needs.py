"""What a test needs beside Python and its packages: whether it is there, and the command that installs it.

Whoever starts a server calls `require("kafka")`. Where it is missing, its tests are skipped, and the last lines of the
run say how many were and what to install. Where all is required (`SQUALL_REQUIRE=all`, or `CI=true`), they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM = "/usr/bin/chromium"
MAVEN = "apt install maven openjdk-17-jre-headless"


class Need(NamedTuple):
    name: str
    is_there: Callable[[], bool]
    install: str


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name) for name in names)


def pg_ctl() -> Path | None:
    """The newest `pg_ctl`; on the PATH, or where Debian has it."""
    on_path = shutil.which("pg_ctl")
    packaged = Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")
    return Path(on_path) if on_path else max(packaged, default=None, key=lambda path: float(path.parts[-3]))


def _has_java() -> bool:
    return subprocess.run([ROOT / ".ci/bootstrap.sh", "java"], capture_output=True).returncode == 0


def _with_java(file: str) -> Callable[[], bool]:
    return lambda: _has_java() and (ROOT / "build" / file).exists()


NEEDS = {
    "java": Need("Java 17", _has_java, "apt install openjdk-17-jre-headless"),
    "kafka": Need("Kafka", _with_java("kafka/of"), f"{MAVEN} && .ci/bootstrap.sh kafka"),
    "zookeeper": Need("ZooKeeper", _with_java("zookeeper/of"), f"{MAVEN} && .ci/bootstrap.sh zookeeper"),
    "rabbitmq": Need("RabbitMQ", _programs("rabbitmq-server"), "apt install rabbitmq-server"),
    "redis": Need("Redis", _programs("redis-server"), "apt install redis-server"),
    "postgres": Need("PostgreSQL", lambda: pg_ctl() is not None, "apt install postgresql"),
    "prometheus": Need("Prometheus", _programs("prometheus", "promtool"), "apt install prometheus"),
    "streamparse": Need(
        "streamparse", (ROOT / "build/streamparse/bin/streamparse").exists, ".ci/bootstrap.sh streamparse"
    ),
    "browser": Need("Chromium", Path(CHROMIUM).exists, "apt install chromium"),
    "gcc": Need("a C compiler", _programs("gcc"), "apt install gcc libc6-dev"),
    "node": Need("Node.js", _programs("node"), "apt install nodejs"),
}


@cache
def _is_there(key: str) -> bool:
    return NEEDS[key].is_there()


def all_is_required() -> bool:
    return os.environ.get("CI") == "true" or os.environ.get("SQUALL_REQUIRE") == "all"


def require(key: str) -> None:
    """Return if it is there; otherwise skip the test, or fail it where all is required."""
    if not _is_there(key):
        ends = pytest.fail if all_is_required() else pytest.skip
        ends(f"needs {NEEDS[key].name}: {NEEDS[key].install}")
