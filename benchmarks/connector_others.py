"""Connectors without a broker, beside what they stand on used bare: each function returns (ours, bare) in records/s.

Ours is a topology on one worker, from its activation to its last ack, or to the last answer. A source is drained by a
bolt that does nothing; a sink is fed by a spout that has its rows at hand. Bare is the same library in batches of 1000.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import multiprocessing
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.connectors import RECORDS, TEXT, AtHand, Drop, Rates
from benchmarks.drained import run_until_drained
from squall import Config, LocalCluster, Topology, TopologyBuilder
from squall.connect import HttpSink, HttpSource, Queue, QueueSink, QueueSource, SqlSink, SqlSource

BATCH, SENDERS = 1000, 4
QUERY, INSERT = f"SELECT id, text FROM lines WHERE id > ? ORDER BY id LIMIT {BATCH}", "INSERT INTO lines VALUES (?, ?)"
HEADERS = {"Content-Type": "application/x-ndjson"}
BATCHES = [[(number, TEXT) for number in range(first, first + BATCH)] for first in range(0, RECORDS, BATCH)]


class Accepts(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def between(spout: Any, bolt: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    return builder.build()


def rates(spout: Any, bolt: Any, bare: Callable[[], object]) -> Rates:
    secs, _ = run_until_drained(between(spout, bolt), Config(workers=1))
    return RECORDS / secs, rate(bare)


def rate(work: Callable[[], object], records: int = RECORDS) -> float:
    began = time.perf_counter()
    work()
    return records / (time.perf_counter() - began)


def table(path: Path, filled: bool) -> Callable[[], sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)")
        database.executemany(INSERT, [row for batch in BATCHES for row in batch] if filled else [])
    return functools.partial(sqlite3.connect, path)


def sql_source(_: Any) -> Rates:
    def bare() -> None:
        with contextlib.closing(connect()) as database:
            last = -1
            while rows := database.execute(QUERY, (last,)).fetchall():
                last = rows[-1][0]

    with tempfile.TemporaryDirectory() as place:
        connect = table(Path(place) / "db", filled=True)
        source = SqlSource(connect, QUERY, ("id", "text"), position="id", begin=-1, until_end=True)
        return rates(source, Drop(), bare)


def sql_sink(_: Any) -> Rates:
    with tempfile.TemporaryDirectory() as place, contextlib.closing(table(Path(place) / "bare", False)()) as database:
        def bare() -> None:
            for batch in BATCHES:
                database.executemany(INSERT, batch)
                database.commit()

        return rates(AtHand("id", "text"), SqlSink(table(Path(place) / "ours", False), INSERT), bare)


def queue_source(_: Any) -> Rates:
    with tempfile.TemporaryDirectory() as place, contextlib.closing(Queue(f"{place}/bare")) as used:
        def take() -> None:
            while found := used.open(BATCH):
                used.confirm([record.id for record in found])

        for batch in BATCHES:
            used.put(batch)
        with contextlib.closing(Queue(f"{place}/ours")) as ours:
            for batch in BATCHES:
                ours.put(batch)
        return rates(QueueSource(f"{place}/ours", ("id", "text"), until_empty=True), Drop(), take)


def queue_sink(_: Any) -> Rates:
    with tempfile.TemporaryDirectory() as place, contextlib.closing(Queue(f"{place}/bare")) as used:
        return rates(AtHand("id", "text"), QueueSink(f"{place}/ours"), lambda: list(map(used.put, BATCHES)))


@contextlib.contextmanager
def accepting() -> Iterator[int]:
    """The port of a bare server, in a process of its own."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Accepts)
    process = multiprocessing.get_context("fork").Process(target=server.serve_forever)
    process.start()
    server.socket.close()
    yield server.server_address[1]
    process.kill()
    process.join()


def send(port: int, bodies: list[bytes]) -> None:
    """Send over a few connections, each of which waits for its answers."""
    def sent(share: list[bytes]) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            for body in share:
                connection.request("POST", "/", body, HEADERS)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 204, answer.status

    with ThreadPoolExecutor(SENDERS) as threads:
        list(threads.map(sent, [bodies[number::SENDERS] for number in range(SENDERS)]))


def http_source(_: Any, lines: int = BATCH, requests: int = RECORDS // BATCH) -> Rates:
    """`lines`: records of a request."""
    bodies = [b"\n".join([TEXT.encode()] * lines)] * requests
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with LocalCluster() as cluster:
        cluster.submit("bench", between(HttpSource(port), Drop()), Config(workers=1)).wait_until_ready(timeout=60)
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.01)
        ours = rate(lambda: send(port, bodies), lines * requests)
    with accepting() as port:
        return ours, rate(lambda: send(port, bodies), lines * requests)


def http_sink(_: Any) -> Rates:
    encode = msgspec.json.Encoder().encode
    with accepting() as port:
        def bare() -> None:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
                for batch in BATCHES:
                    body = b"\n".join(encode({"id": number, "text": text}) for number, text in batch)
                    connection.request("POST", "/", body, HEADERS)
                    connection.getresponse().read()

        return rates(AtHand("id", "text"), HttpSink(f"http://127.0.0.1:{port}"), bare)


SERVERS: dict[str, Callable[[], Any]] = {"": contextlib.nullcontext}
CONNECTORS: dict[str, tuple[str, Callable[[Any], Rates]]] = {
    "SqlSource": ("", sql_source), "SqlSink": ("", sql_sink), "QueueSource": ("", queue_source),
    "QueueSink": ("", queue_sink), "HttpSource": ("", http_source), "HttpSink": ("", http_sink),
}
