"""A streaming query and a topology, each on its own, while both are killed in turn, and at once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.process.cli import ROOT, environment
from tests.process.standing_tools import directory
from tests.process.waiting import wait_for
from tests.process.written import Written

PAGE = (ROOT / "docs" / "spark.md").read_text()
ROWS = 15_000
DRIVER = """
from squall.pipeline.session import spark_session

with spark_session("live") as spark:
{}
    query.awaitTermination()
"""


def block(name: str) -> str:
    (found,) = re.findall(rf"^```python\n# {re.escape(name)}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


class Driver:
    """The program with the query, and its JVM."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        code = block("live.py").replace("build/", f"{folder}/")
        (folder / "driver.py").write_text(DRIVER.format(re.sub(r"^(?=.)", "    ", code, flags=re.MULTILINE)))
        (folder / "tmp").mkdir()
        self.start()

    def start(self) -> None:
        line = [sys.executable, str(self._folder / "driver.py")]
        self._process = subprocess.Popen(line, env=environment(TMPDIR=str(self._folder / "tmp")), cwd=self._folder)

    def kill(self) -> None:
        """SIGKILL for driver, JVM and Spark's Python workers."""
        mine = psutil.Process(self._process.pid)
        everything = [mine, *mine.children(recursive=True)]
        for process in everything:
            process.kill()
        self._process.wait()
        psutil.wait_procs(everything)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    (tmp_path / "incoming").mkdir()
    running = Driver(tmp_path)
    yield running
    running.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_fed_twice_whoever_is_killed(driver: Driver, tmp_path: Path) -> None:
    program, inlet, written = tmp_path / "live_topology.py", tmp_path / "inlet", Written(tmp_path / "out")
    program.write_text(block("live_topology.py"))
    with directory() as cluster:
        cluster.up()
        cluster.ok("submit", program, "--name", "live", "--workers", "2", "--", inlet, tmp_path / "out")

        def everything() -> None:
            cluster.kill_all()
            cluster.up()

        def spark() -> None:
            driver.kill()
            driver.start()

        def both() -> None:
            cluster.kill_all()
            driver.kill()
            cluster.up()
            driver.start()

        victims: list[Callable[[], object]] = [
            lambda: cluster.ok("inject", "kill", "worker lines[0]"), spark, everything, both,
        ]
        for number, kill in enumerate(victims):
            (tmp_path / "_new").write_text("\n".join(f"{number}.{row}" for row in range(ROWS)))
            (tmp_path / "_new").rename(tmp_path / "incoming" / f"{number}.txt")
            begins = f"{number}."
            wait_for("some rows", lambda b=begins: any(t.startswith(b) for t in written.look().values()), 120)
            kill()
        wanted = Counter(f"{number}.{row}" for number in range(len(victims)) for row in range(ROWS))
        wait_for("every row", lambda: len(written.look()) >= len(wanted), 120)
        wait_for("the last batch's commit", lambda: all(name.name.startswith("_") for name in inlet.iterdir()), 120)
    # By id: a batch that was fed again would have others.
    assert Counter(written.texts.values()) == wanted
