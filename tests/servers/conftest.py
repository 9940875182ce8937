"""Servers, a cluster of Squall for the topologies that read and write them, and a browser: each is started once a run.

Tests that share one have the same `xdist_group`. Whoever kills a server starts it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser

from squall import LocalCluster
from tests.process.conftest import SharedCluster
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.servers import kafka, postgres, rabbitmq, redis_server, zookeeper
from tests.servers.program import Program
from tests.servers.ui_tools import chromium_started, cluster_with_page

SECRETS = {"RABBIT_PASSWORD": rabbitmq.PASSWORD, "REDIS_PASSWORD": redis_server.PASSWORD, "WRONG": "p@ss/word"}


@pytest.fixture(scope="session")
def passwords() -> Iterator[None]:
    """In the environment, from where sources and sinks take them."""
    with pytest.MonkeyPatch.context() as environment:
        for name, secret in SECRETS.items():
            environment.setenv(name, secret)
        yield


def shared(running: Callable[[], AbstractContextManager[Program]], scope: Literal["session", "module"]) -> Any:
    """A fixture: the server that this starts. Those that cost while nobody asks live for one file."""

    @pytest.fixture(scope=scope)
    def server(passwords: None) -> Iterator[Program]:
        with running() as server:
            yield server

    return server


kafka_server, rabbit = shared(kafka.running, "module"), shared(rabbitmq.running, "session")
redis, postgres_server = shared(redis_server.running, "session"), shared(postgres.running, "session")
zookeeper_server = shared(zookeeper.running, "session")


@pytest.fixture(scope="module")  # while it lives, asyncio.run is refused in this process
def chromium() -> Iterator[Browser]:
    with chromium_started() as browser:
        yield browser


@pytest.fixture(scope="session")
def page_cluster_of_all() -> Iterator[Standing]:
    with cluster_with_page() as made:
        wait_for("the dead letter", lambda: made.described("words").dead_letters == 1)
        yield made


@pytest.fixture(scope="module")
def page_cluster(page_cluster_of_all: Standing) -> Iterator[Standing]:
    """A cluster with a web page, and a topology of which a message was given up. It rests while no test looks: it takes
    a sixth of a core."""
    page_cluster_of_all.ok("activate", "words")
    yield page_cluster_of_all
    page_cluster_of_all.ok("deactivate", "words")


@pytest.fixture(scope="session")
def squall(passwords: None) -> Iterator[SharedCluster]:
    """Two slots for the topologies of one test after the other."""
    with SharedCluster(slots=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(squall: SharedCluster) -> Iterator[LocalCluster]:
    """The cluster, without topologies before and after, and without what was said before."""
    squall.new_log_lines()
    yield squall
    squall.clear()
