"""Servers, a cluster of Squall for the topologies that read and write them, and a browser: each is started once a run.

Tests that share one have the same `xdist_group`. Whoever kills a server starts it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from squall import Job, LocalCluster
from tests.servers import kafka, postgres, rabbitmq, redis_server, zookeeper
from tests.servers.kafka import Broker as KafkaBroker
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import Broker as RabbitBroker
from tests.servers.redis_server import RedisServer
from tests.servers.zookeeper import ZooKeeperServer

SECRETS = {"RABBIT_PASSWORD": rabbitmq.PASSWORD, "REDIS_PASSWORD": redis_server.PASSWORD, "WRONG": "p@ss/word"}


@pytest.fixture(scope="session")
def passwords() -> Iterator[None]:
    """In the environment, from where sources and sinks take them."""
    with pytest.MonkeyPatch.context() as environment:
        for name, secret in SECRETS.items():
            environment.setenv(name, secret)
        yield


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaBroker]:
    with kafka.running() as broker:
        yield broker


@pytest.fixture
def kafka_broker(kafka_server: KafkaBroker) -> Iterator[KafkaBroker]:
    kafka_server.start()
    yield kafka_server
    kafka_server.disconnect()


@pytest.fixture(scope="session")
def rabbit(passwords: None) -> Iterator[RabbitBroker]:
    with rabbitmq.running() as broker:
        yield broker


@pytest.fixture(scope="session")
def redis(passwords: None) -> Iterator[RedisServer]:
    with redis_server.running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    with zookeeper.running() as server:
        yield server


class SharedCluster(LocalCluster):
    """Two slots for the topologies of one test after the other, each of which begins anew if it does not say else."""

    def __init__(self) -> None:
        self._jobs = list[Job]()
        super().__init__(nodes=1, slots_per_node=2)

    def submit(self, *given: Any, **options: Any) -> Job:
        self._jobs.append(super().submit(*given, **{"fresh": True, **options}))
        return self._jobs[-1]

    def clear(self) -> None:
        self.heal()
        for name in self.names():
            with contextlib.closing(self.job(name)) as job:
                job.kill(wait_secs=0)
        while self._jobs:
            self._jobs.pop().close()


@pytest.fixture(scope="session")
def squall(passwords: None) -> Iterator[SharedCluster]:
    with SharedCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(squall: SharedCluster) -> Iterator[LocalCluster]:
    """The cluster, without topologies before and after, and without what was said before."""
    squall.new_log_lines()
    yield squall
    squall.clear()
