"""AsyncBolt on real workers: the page's program, and the example under kills beside a service that fails."""

from __future__ import annotations

import itertools
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli import ROOT, squall

PAGE = (ROOT / "docs" / "async.md").read_text()


def test_the_program_of_the_page(tmp_path: Path) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "fetch.py").write_text(program)
    for mode in ((), ("--local", "--set", "max_spout_pending=10")):
        text = program if not mode else program.replace("range(1000)", "range(20)")
        (tmp_path / "fetch.py").write_text(text)
        done = squall("run", tmp_path / "fetch.py", *mode, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["acked"] == report["components"]["fetch"]["executed"] == (20 if mode else 1000)
        if not mode:
            assert report["components"]["fetch"]["capacity"] > 1.5, "many were in flight"


class Names(socketserver.StreamRequestHandler):
    """Answers with a name, but hangs up on every fifth request."""

    requests = itertools.count(1)

    def handle(self) -> None:
        line = self.rfile.readline()
        if next(self.requests) % 5:
            self.wfile.write(b"customer " + line)


@pytest.fixture
def service() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Names) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_the_example_finds_every_name_under_kills(service: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kills = [part for ms in (100, 200, 300) for part in ("--fault", f"kill worker look_up[0] at {ms}ms")]
    done = squall("run", "examples/enrich.py", "--workers", "2", "--json", *kills, "--", service, out)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["drained"]
    assert report["restarts"]
    wanted = {f"{number},{number * 7 % 100},customer {number * 7 % 100}" for number in range(500)}
    assert set(out.read_text().splitlines()) == wanted
