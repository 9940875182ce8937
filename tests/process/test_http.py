"""A webhook's endpoint and a sink that posts, with a real client and a real server."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import http.server
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from squall import Config, Job, UsageError, spout
from squall.connect import HttpSink, HttpSource
from tests.process.cli import ROOT
from tests.process.conftest import SECRET, SharedCluster
from tests.process.ends import Numbers, ToFile, between
from tests.process.waiting import wait_for

TOKEN = "${TOKEN_OF_TEST}"
TIMEOUT_SECS = 100


class Mute:
    def __str__(self) -> str:
        raise KeyError


class Hasty(HttpSource):
    answer_secs = 0.1


def to_file(path: Path) -> ToFile:
    return ToFile(path, lambda body: "bad" in str(body))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def port() -> int:
    return free_port()


def told(cluster: SharedCluster, job: Job) -> str:
    """What the workers have written."""
    return "".join(path.read_text() for path in cluster.run_dir.worker_logs(job.id).glob("*.log"))


# ---- the source ----


def post(port: int, body: bytes, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    """Send a request; return the answer, of which the body is read."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECS)) as connection:
        connection.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        answer.read()
        return answer


def is_there(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), TIMEOUT_SECS).close()
    except OSError:
        return False
    return True


def listening(cluster: SharedCluster, source: HttpSource, port: int, path: Path, **settings: Any) -> Job:
    job = cluster.submit("hook", between(source, to_file(path)), Config(workers=1, **settings))
    wait_for("the port", lambda: is_there(port))
    return job


def test_each_request_gets_its_answer(
    shared_cluster: SharedCluster, tmp_path: Path, port: int
) -> None:
    path = tmp_path / "there"
    path.touch()
    source = HttpSource(port, "/in", body="json", token=TOKEN)
    job = listening(shared_cluster, source, port, path, max_attempts=1)
    right = f"Bearer {SECRET}"
    lines = {"Authorization": right, "Content_Type": "application/x-ndjson; charset=utf-8"}
    for body, at, headers, status in (
        (b'{"a": [1]}', "/in", {"Authorization": right}, 204),
        (b'1\n"x\\n"\n\n', "/in?from=test", lines, 204),
        (b"", "/in", lines, 204),
        (gzip.compress(b"3"), "/in", {**lines, "Content_Encoding": "GZIP"}, 204),
        ("\ufeff4".encode("utf-16-le"), "/in", {**lines, "Content_Type": "a/b; charset=UTF-16LE"}, 204),
        (b"\xef\xbb\xbf5\n \n", "/in", lines, 204),
        (b'"bad"', "/in", {"Authorization": right}, 422),
        (b'1\n"bad"\n2', "/in", lines, 422),
        (gzip.compress(b" " * (3 << 20)), "/in", {**lines, "Content_Encoding": "x-gzip"}, 413),
        (b"9", "/in", {**lines, "Content_Encoding": "gzip"}, 400),
        (b"9", "/in", {**lines, "Content_Encoding": "br"}, 415),
        (b"9", "/in", {**lines, "Content_Type": "a/b; charset=none"}, 415),
        (b"{", "/in", {"Authorization": right}, 400),
        (b"[" * 100_000, "/in", {"Authorization": right}, 400),
        (b'{"a": ' * 500 + b"1" + b"}" * 500, "/in", {"Authorization": right}, 400),
        (b"1", "/in", {}, 401),
        (b"1", "/in", {"Authorization": f"Bearer {SECRET}é"}, 401),
        (b"1", "/", {"Authorization": right}, 404),
        (b"1" * (3 << 20), "/in", {"Authorization": right}, 413),
        (b"1", "/in", {"Authorization": right, "Content_Length": "-1"}, 411),
        (b"1\r\n1\r\n0\r\n\r\n", "/in", {"Authorization": right, "Transfer_Encoding": "chunked"}, 411),
    ):
        assert (body[:20], post(port, body, at, **headers).status) == (body[:20], status)
    assert path.read_text().splitlines() == ["{'a': [1]}", "1", "x", "", "3", "4", "5", "1", "2"]
    assert SECRET not in told(shared_cluster, job)
    assert SECRET.encode() not in cloudpickle.dumps(between(source, to_file(path)))


def test_a_request_is_named_by_its_sender_and_too_many_are_to_come_again(
    shared_cluster: SharedCluster, tmp_path: Path, port: int
) -> None:
    path = tmp_path / "there"
    job = listening(shared_cluster, Hasty(port, max_open=2, identity="Idempotency-Key"), port, path)
    odd = [post(port, body, Idempotency_Key="no text").status for body in (b"\xff", "1".encode("utf-16-le"))]
    assert [post(port, b"1").status, *odd] == [400, 400, 415]
    lines = {"Content_Type": "application/x-ndjson", "Idempotency_Key": "first"}
    *answers, late = [post(port, b"1\n2", **lines) for _ in range(3)]
    assert [answer.status for answer in answers] == [503, 503]
    assert (late.status, late.headers["Retry-After"]) == (429, "1")
    path.touch()
    wait_for("room", lambda: post(port, "é".encode(), Idempotency_Key="other").status == 204)
    assert Counter(path.read_text().split()) == {"1": 1, "2": 1, "é": 1}
    assert not job.stats().restarts


def test_a_request_that_is_in_process_at_the_end_is_to_come_again(
    shared_cluster: SharedCluster, tmp_path: Path, port: int
) -> None:
    job = listening(shared_cluster, HttpSource(port), port, tmp_path / "there")
    answers = list[int]()

    def sent() -> None:
        try:
            answers.append(post(port, b"1").status)
        except (OSError, http.client.HTTPException):
            answers.append(503)  # the worker ended before its thread could say so

    sender = threading.Thread(target=sent)
    sender.start()
    wait_for("it to be in process", lambda: job.stats().messages == 1)
    job.kill(wait_secs=0)
    sender.join(TIMEOUT_SECS)
    assert answers == [503]


def test_a_port_in_use_is_told_and_waited_for(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        job = shared_cluster.submit("hook", between(HttpSource(port), to_file(path)))
        why = f"HttpSource is cut off: ConnectionError: cannot listen at ('127.0.0.1', {port}): OSError: [Errno 98]"
        wait_for("a word of it", lambda: why in told(shared_cluster, job))
    wait_for("the port", lambda: is_there(port))
    assert post(port, b"1").status == 204


def test_the_page_shows_what_runs(shared_cluster: SharedCluster, tmp_path: Path, port: int) -> None:
    section = (ROOT / "docs/connectors.md").read_text().partition("\n## HTTP\n")[2]
    [program] = re.findall(r"^```python\n# hook.py\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    shown: dict[str, Any] = {}
    exec(program.replace("8080", str(port)).replace('"events"', repr(str(tmp_path))), shown)
    shared_cluster.submit("hook", shown["topology"])
    wait_for("the port", lambda: is_there(port))
    assert post(port, b'{"order": 17}', "/events", Idempotency_Key="1").status == 204
    assert [path.read_text() for path in tmp_path.glob("*.jsonl")] == ['{"body":{"order":17}}\n']


# ---- the sink ----


class Receiver:
    """A server that keeps the numbers that it accepts."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.numbers, self.posts = list[int](), list[tuple[float, str, int]]()
        self.answer: Callable[[list[Any]], tuple[int, dict[str, str]]] = lambda rows: (204, {})
        self._port, self.server = port, None

    def start(self) -> None:
        outer = self

        class Post(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                rows = [json.loads(line) for line in self.rfile.read(int(self.headers["Content-Length"])).splitlines()]
                if outer.server is None:
                    self.close_connection = True
                    return
                status, headers = outer.answer(rows)
                outer.posts.append((time.monotonic(), self.headers.get("Authorization", ""), len(rows)))
                if status < 300:
                    outer.numbers += [row["number"] for row in rows]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self._port), Post)
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()

    def stop(self) -> None:
        """It takes no connections; those that it has end at the next request, without an answer."""
        server, self.server = self.server, None
        if server is not None:
            server.shutdown()
            server.server_close()


@pytest.fixture
def receiver(port: int) -> Iterator[Receiver]:
    made = Receiver(port)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(("each", "rows"), [(True, 1500), (False, 5000)])
def test_a_server_that_comes_back_gets_every_row(
    shared_cluster: SharedCluster, receiver: Receiver, each: bool, rows: int
) -> None:
    receiver.stop()
    topology = between(Numbers(rows), HttpSink(receiver.url, each=each))
    job = shared_cluster.submit("post", topology, Config(max_attempts=2))
    why = f"HttpSink is cut off: ConnectionError: {receiver.url}: "
    wait_for("a word of it", lambda: why in told(shared_cluster, job))
    receiver.start()
    wait_for("some rows", lambda: len(receiver.numbers) > 50)
    receiver.stop()
    before = job.stats().failed
    wait_for("a failure", lambda: job.stats().failed > before)
    receiver.start()
    job.wait_until_drained(timeout=TIMEOUT_SECS)
    assert (job.stats().acked, job.stats().dead_letters) == (rows, 0)
    assert set(receiver.numbers) == set(range(rows))
    assert not each or {size for _, _, size in receiver.posts} == {1}


def test_rows_that_are_refused_or_no_json_fail_alone(shared_cluster: SharedCluster, receiver: Receiver) -> None:
    receiver.answer = lambda rows: (422 if any(row["number"] % 100 == 0 for row in rows) else 200, {})
    rows = spout("number")(lambda: iter([*range(500), "half \ud800", Mute(), *range(500, 1000)]))
    job = shared_cluster.submit("post", between(rows, HttpSink(receiver.url)), Config(max_attempts=2))
    job.wait_until_drained(timeout=TIMEOUT_SECS)
    assert (job.stats().acked, job.stats().dead_letters) == (990, 12)
    assert sorted(receiver.numbers) == [number for number in range(1000) if number % 100]
    failures = str(job.stats().failures)
    assert f"{receiver.url} answers 422 Unprocessable Entity" in failures
    assert "HttpSink cannot send (" in failures


def test_it_waits_as_long_as_it_is_told_to(shared_cluster: SharedCluster, receiver: Receiver) -> None:
    receiver.answer = lambda rows: (204, {}) if len(receiver.posts) == 2 else (429, {"Retry-After": "1"})
    job = shared_cluster.submit("post", between(Numbers(1), HttpSink(receiver.url)))
    job.wait_until_drained(timeout=TIMEOUT_SECS)
    first, second, third = (at for at, _, _ in receiver.posts)
    assert min(second - first, third - second) > 0.9
    assert receiver.numbers == [0]


def test_a_wrong_token_costs_no_row_and_is_nowhere(shared_cluster: SharedCluster, receiver: Receiver) -> None:
    receiver.answer = lambda rows: (401, {})
    topology = between(Numbers(10), HttpSink(f"{receiver.url}/{TOKEN}", token=TOKEN))
    job = shared_cluster.submit("post", topology, Config(max_attempts=1))
    why = f"{receiver.url}/{TOKEN} answers 401 Unauthorized; it tries again"
    wait_for("a word of it", lambda: why in told(shared_cluster, job))
    receiver.answer = lambda rows: (204, {})
    job.wait_until_drained(timeout=TIMEOUT_SECS)
    assert job.stats().acked == 10
    assert {token for _, token, _ in receiver.posts} == {f"Bearer {SECRET}"}
    assert SECRET not in told(shared_cluster, job) + str(job.stats())
    assert SECRET.encode() not in cloudpickle.dumps(topology)


@pytest.mark.parametrize("make", [
    lambda: HttpSource(0), lambda: HttpSource(80, max_open=0), lambda: HttpSource(80, body="xml"),
    lambda: HttpSource(80, token=SECRET), lambda: HttpSource(80, identity="a key"),
    lambda: HttpSink("ftp://host"), lambda: HttpSink("http:///path"),
    lambda: HttpSink(f"http://me:{SECRET}@host"), lambda: HttpSink("http://me:${PW}@host"),
    lambda: HttpSink("http://host", token=SECRET),
])
def test_what_cannot_be_is_refused_without_its_secret(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r"allowed: |expected ") as refused:
        make()
    assert SECRET not in str(refused.value)
