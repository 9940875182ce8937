"""The three applications of examples/, killed three times each: two workers, then the whole cluster. What their pages
call exact is exact afterwards."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples import top_ten
from tests.docs.pages import Page
from tests.process.cli import ROOT, environment
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

ACCESS_LOG, ENRICH, TOP_TEN = (f"docs/examples/{name}.md" for name in ("access_log", "enrich", "top_ten"))


def submit(cluster: Standing, page: str, *more: str, pending: int = 100, **paths: object) -> str:
    """Submit an example as its page says, with paths of the test's; its name. It has few messages pending, so that it
    is not done before the last kill."""
    [command] = [line for line in Page(page).commands if line.startswith("submit ")]
    arguments = [str(paths.get(word, word)) for word in shlex.split(command)]
    arguments[1:1] = ["--set", f"max_spout_pending={pending}"]
    cluster.up()
    cluster.ok(*arguments, *more)
    return arguments[arguments.index("--name") + 1]


def shown(page: str, directory: Path) -> str:
    """What the program on the page prints, run in `directory`."""
    [program] = Page(page).of("python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_worker_of(cluster: Standing, name: str, component: str) -> None:
    """SIGKILL, as soon as that worker is ready."""

    def pid() -> int | None:
        described = cluster.described(name)
        [slot, *_] = [one.worker for one in described.executors if one.component == component]
        [worker] = [one for one in described.workers if one.worker == slot]
        return worker.pid if worker.state == "ready" else None

    os.kill(wait_for(f"a worker with {component}", pid), signal.SIGKILL)


def kill_at_each_sign(cluster: Standing, name: str, components: tuple[str, str], seen: Callable[[], Any]) -> None:
    """A worker of one component, of the other, then the cluster, whenever there is more to see; wait for its end."""
    for component in (*components, ""):
        before = seen()
        wait_for("more of it", lambda before=before: bool(seen() > before))
        if component:
            kill_worker_of(cluster, name, component)
    cluster.kill_all()
    cluster.up()
    wait_for("its end", lambda: cluster.described(name).status == "FINISHED")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    if not path.exists():
        return []
    with sqlite3.connect(path) as db:
        try:
            return db.execute(query).fetchall()
        except sqlite3.OperationalError:  # not made yet
            return []
        finally:
            db.commit()


class AccessLog:
    """Writes lines to a log, and knows what they add up to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def write(self, count: int = 300) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                self.number += 1
                at = datetime.fromtimestamp(1_800_000_000 + self.number // 40, UTC)
                status = 500 if self.number % 97 < 5 else 200
                time = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
                line = f'10.0.0.{self.number % 250} - - [{time}] "GET /{self.number} HTTP/1.1" {status} 12'
                second = at.isoformat()
                if self.number % 50 == 0:
                    line, second, status = f"no line of a log, number {self.number}", "unreadable", 0
                print(line, file=file)
                self.requests[second] += 1
                self.errors[second] += status == 500

    @property
    def rotated(self) -> str:
        """As by date: the newest is the greatest."""
        return f"{self.path}-{20_000_000 + self.number}"

    def rename(self) -> None:
        self.path.rename(self.rotated)

    def copy_and_cut(self) -> None:
        shutil.copy(self.path, self.rotated)
        os.truncate(self.path, 0)

    def rates(self) -> list[tuple[str, int, int]]:
        return sorted((second, count, self.errors[second]) for second, count in self.requests.items())


def test_the_tail_of_an_access_log_counts_each_line_once(cluster: Standing, tmp_path: Path) -> None:
    log, out = AccessLog(tmp_path / "access.log"), tmp_path / "rates.db"
    log.write()
    name = submit(cluster, ACCESS_LOG, **{"access.log": log.path, "rates.db": out})

    def wait_for_all() -> None:
        what = "SELECT sum(requests) FROM rates"
        wait_for(f"{log.number} lines", lambda: rows(out, what) == [(log.number,)])

    wait_for("some lines", lambda: rows(out, "SELECT * FROM rates"))
    log.write()
    kill_worker_of(cluster, name, "tail")
    log.rename()
    log.write()
    kill_worker_of(cluster, name, "rates")
    log.copy_and_cut()
    log.write()
    wait_for_all()
    log.write()
    cluster.kill_all()
    log.write()
    log.copy_and_cut()
    log.write()
    log.rename()
    log.write()
    cluster.up()
    wait_for_all()
    assert sorted(rows(out, "SELECT * FROM rates")) == log.rates()
    cluster.ok("kill", name)
    assert sorted(rows(out, "SELECT * FROM rates")) == log.rates()
    first, *_ = log.rates()
    assert shown(ACCESS_LOG, tmp_path).startswith(" ".join(map(str, first)))
    told = re.findall(r"ALARM (\S+): ", cluster.ok("logs", name))
    assert set(told) == {second for second, _, errors in log.rates() if errors >= 5}


@pytest.fixture
def service() -> Iterator[str]:
    """Its URL."""
    arguments = [sys.executable, "-m", "tests.process.name_service"]
    with subprocess.Popen(
        arguments, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/customers/"
        process.communicate("")


@pytest.mark.nightly
def test_enrichment_writes_each_order_once(cluster: Standing, service: str, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    parquet = pytest.importorskip("pyarrow.parquet")
    orders, out = tmp_path / "orders.csv", tmp_path / "enriched"
    lines = [f"{number},{number * 7 % 100}\n" for number in range(1_500)]
    orders.write_text("".join(lines + lines[:300]))

    def written() -> list[dict[str, object]]:
        return [row for path in out.glob("*.parquet") for row in parquet.read_table(path).to_pylist()]

    paths = {"orders.csv": orders, "http://localhost:8080/customers/": service, "enriched": out}
    name = submit(cluster, ENRICH, pending=300, **paths)
    kill_at_each_sign(cluster, name, ("look_up", "keep"), lambda: len(written()))
    assert sorted((row["order"], row["customer"], row["name"]) for row in written()) == sorted(
        (number, number * 7 % 100, f"customer {number * 7 % 100}") for number in [*range(1_500), *range(300)]
    )
    pytest.importorskip("pandas")
    assert shown(ENRICH, tmp_path) == "1800\n"


@pytest.mark.nightly
def test_the_top_ten_of_each_second_are_exact(cluster: Standing, tmp_path: Path) -> None:
    out, count = tmp_path / "top_ten.db", 20_000
    name = submit(cluster, TOP_TEN, "--orders", str(count), **{"top_ten.db": out})
    pieces = "SELECT coalesce(sum(pieces), 0) FROM counts"
    kill_at_each_sign(cluster, name, ("count", "rank"), lambda: rows(out, pieces))
    wanted: dict[int, Counter[str]] = {}
    for second, product, number in map(top_ten.order, range(count)):
        wanted.setdefault(second, Counter())[product] += number
    ranked = [
        (second, product, number, place)
        for second, counts in wanted.items()
        for place, (product, number) in enumerate(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:10], 1)
    ]
    assert rows(out, "SELECT * FROM top_ten ORDER BY second, place") == ranked
    assert [shown(TOP_TEN, tmp_path)] == Page(TOP_TEN).of("text")
