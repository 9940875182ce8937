"""AsyncBolt on real workers: the page's program. The example is in test_applications.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.process.cli import ROOT, squall
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

PAGE = (ROOT / "docs" / "async.md").read_text()


def test_the_program_of_the_page(tmp_path: Path) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "fetch.py").write_text(program)
    done = squall("run", tmp_path / "fetch.py", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["acked"] == report["components"]["fetch"]["executed"] == 1000


STUCK = """
import asyncio, time
from squall import AsyncBolt, Bolt, TopologyBuilder, spout

@spout("n")
def numbers():
    return range(10)

class Enrich(AsyncBolt):
    async def setup(self):
        await asyncio.Event().wait()
    async def execute(self, tup):
        pass

class Opens(Bolt):
    def prepare(self, conf, context, collector):
        time.sleep(3600)
    def execute(self, tup):
        pass

def topology(arguments):
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("enrich", Enrich() if arguments == ["setup"] else Opens()).shuffle_grouping("numbers")
    return builder.build()
"""


def test_status_names_a_task_that_is_not_set_up(standing: Standing, tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    for method in ("setup", "prepare"):
        standing.ok("submit", tmp_path / "stuck.py", "--name", method, "--", method)
        said = rf"enrich\[\d\] on node-1:\d+ is still in {method} after \d+ s"
        wait_for(f"{method} in status", lambda said=said, name=method: re.search(said, standing.ok("status", name)))
