"""A served cluster for tests of REST and metrics: a topology that measures itself, the real application on a port."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    LocalCluster,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.ipc.rundir import RunDir
from squall.ui.cluster_api import ClusterApi
from squall.ui.history import History
from squall.ui.otlp import OtlpSender
from squall.ui.sampler import Sampler
from squall.ui.server import api_app
from tests.process.waiting import wait_for
from tests.unit.source import ROOT

PAUSE_SECS = 0.02
"""Between two lines: the tests share the machine with the topology."""


class Lines(Spout):
    outputs = ("line",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.numbers, self.due = collector, itertools.count(), time.monotonic()

    def next_tuple(self) -> None:
        if time.monotonic() < self.due:
            return
        self.due += PAUSE_SECS
        number = next(self.numbers)
        self.collector.emit((f"line {number % 100}",), message_id=number)


class Split(BasicBolt):
    outputs = ("word",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.lines = context.counter("lines.seen")
        self.alike = context.counter("lines-seen")
        self.size = context.histogram("size")
        context.gauge("of no number", lambda: float("nan"))

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.lines.inc()
        self.alike.inc(2)
        self.size.update(len(tup["line"]))
        for word in tup["line"].split():
            collector.emit((word,))


class Count(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        pass


def words(**settings: Any) -> Topology:
    builder = TopologyBuilder(Config(workers=2, max_spout_pending=50, **settings))
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return builder.build()


class Served:
    """A cluster, and the address of its application."""

    def __init__(self, cluster: LocalCluster, port: int) -> None:
        self.cluster, self.port = cluster, port
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """The JSON document of a path."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            return str(answer.read().decode())

    def start(self, name: str, **settings: Any) -> None:
        """Submit a topology, and wait until its workers are ready and it was looked at."""
        with contextlib.closing(self.cluster.submit(name, words(**settings))) as job:
            job.wait_until_ready()
        wait_for(f"a look at {name}", lambda: name in self.names())

    def names(self) -> set[str]:
        """The topologies that were looked at."""
        return {row["name"] for row in self.get("/api/squall/v1/topologies")}


@contextlib.contextmanager
def served(*otlp: str) -> Iterator[Served]:
    """A cluster of two nodes, with its application in a process of its own. `otlp`: where that sends metrics."""
    with LocalCluster(nodes=2, slots_per_node=2, logs=False) as cluster:
        command = [sys.executable, "-m", "tests.process.ui_parts", str(cluster.run_dir.path), *otlp]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield Served(cluster, int(server.stdout.readline()))
            finally:
                server.terminate()


def main(directory: str, *otlp: str) -> None:
    """Serve until terminated; prints the port."""
    run_dir = RunDir.open(directory)
    with contextlib.ExitStack() as open_:
        history = open_.enter_context(contextlib.closing(History(run_dir.ui_history)))
        sampler = open_.enter_context(contextlib.closing(Sampler(run_dir, history.add)))
        sampler.start()
        api = ClusterApi(sampler, False, history)
        for address in otlp:
            open_.enter_context(contextlib.closing(OtlpSender(api, address, every_secs=1)))
        listener = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(api_app(api), log_level="warning")).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
