"""Submission: a bad file leaves no trace in the cluster, a good one travels whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall.cli.load_child import load_apart
from squall.cli.settings import Layers
from squall.engine.errors import UsageError
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

HEAD = """
import threading
from squall import BasicBolt, Bolt, Spout, TopologyBuilder

class One(Spout):
    outputs = ("a", "b")
    def open(self, conf, context, collector):
        self.collector, self.left = collector, 1
    def next_tuple(self):
        if self.left:
            self.left = 0
            self.collector.emit((1, 2), message_id="only")
        self.exhausted = not self.left

class Nothing(BasicBolt):
    def execute(self, tup, collector):
        pass

def build(spout, bolt):
    builder = TopologyBuilder()
    builder.set_spout("one", spout)
    builder.set_bolt("nothing", bolt).shuffle_grouping("one")
    return builder.build()
"""
GOOD = HEAD + "topology = build(One(), Nothing())\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.py"


def assert_untouched(standing: Standing) -> None:
    assert standing.json("list")["topologies"] == []
    for folder in (standing.run_dir.code, standing.run_dir.boards):
        assert list(folder.iterdir()) == []


def test_bad_files_are_refused_and_leave_no_trace(standing: Standing, file: Path) -> None:
    file.write_text(HEAD + "s = One()\ns.inner = {'lock': threading.Lock()}\ntopology = build(s, Nothing())\n")
    message = "component 'one' cannot be sent to a worker: one.inner, a dict, cannot be pickled"
    assert message in standing.refused(2, "submit", file, "--name", "x")
    assert_untouched(standing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import time\ntime.sleep(60)\n", "took longer than 1 s; start what takes long in open()"),
        ("import os\nos._exit(0)\n", "ended its process: exited with code 0; a topology file must run to its end"),
        ("import os\nos.kill(os.getpid(), 11)\n", "ended its process: killed by SIGSEGV"),
        ("import os, time\nos.closerange(0, 100)\n", "ended its process: exited with code 1"),
        ("raise SystemExit(7)\n", "importing it raised SystemExit: 7"),
        ("raise ValueError('a \\udc80')\n", "importing it raised ValueError: a \\udc80"),
    ],
)
def test_what_an_import_may_not_do(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_apart(str(file), [], Layers({}), limit_secs=1.0 if "longer" in message else 40.0)
    assert message in str(caught.value)


def test_processes_that_an_import_leaves_behind_are_ended(file: Path) -> None:
    file.write_text("import subprocess\nchild = subprocess.Popen(['sleep', '60'])\nprint(child.pid)\n" + GOOD)
    code, _ = load_apart(str(file), [], Layers({}))
    assert {component.id for component in code.components} == {"one", "nothing", "__acker"}
    # The leak checks of every test would find the sleeping one.


def test_the_users_own_traceback(standing: Standing, file: Path) -> None:
    file.write_text("print('before')\ndef topology():\n    return 1 / 0\n")
    done = standing.apart("--debug", "submit", file, "--name", "x")
    assert done.returncode == 2
    assert "return 1 / 0" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.startswith("before\n")
    assert done.stderr.splitlines()[-1].endswith("topology() raised ZeroDivisionError: division by zero")
    assert_untouched(standing)


def test_a_package_travels_whole_under_its_real_name(standing: Standing, tmp_path: Path) -> None:
    """Relative imports work in a worker, and a module that is imported late is the submitted one."""
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "late.py").write_text("WORD = 'as submitted'\n")
    (package / "parts.py").write_text(
        HEAD.replace("pass", "from .late import WORD; print(__name__, WORD, flush=True)")
    )
    (package / "topology.py").write_text("from .parts import *\ntopology = build(One(), Nothing())\n")
    target = ("submit", "shop.topology:topology", "--app-dir", tmp_path / "src")
    submitted = standing.json(*target, "--name", "packed", "--inactive")
    (package / "late.py").write_text("WORD = 'changed since'\n")
    standing.ok("activate", "packed")
    log = standing.run_dir.worker_log(submitted["id"], "node-1", 6700)
    wait_for("the tuple", lambda: log.exists() and "\n" in log.read_text())
    assert log.read_text() == "shop.parts as submitted\n"
    standing.ok("kill", "packed")
    assert_untouched(standing)


SECRET = "geheim-4711"
SET_UP = "import logging, os, threading\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s|%(message)s')\n"
TELLS = HEAD.replace("import threading", SET_UP + "AT_IMPORT = os.environ['TOKEN']").replace(
    "class Nothing(BasicBolt):\n",
    "class Nothing(BasicBolt):\n    def prepare(self, conf, context):\n"
    "        logging.info('prepared')\n        logging.debug('not told')\n"
    "        with open('told', 'a') as file:\n"
    "            file.write(' '.join([AT_IMPORT, os.environ['TOKEN'], os.environ['PLAIN']]) + chr(10))\n",
) + "topology = build(One(), Nothing())\n"


def test_variables_and_working_directory_are_the_submitters(
    standing: Standing, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the deaths of Nimbus and of a worker; secrets are nowhere but in their file."""
    file.write_text(TELLS)
    home = tmp_path / "home"
    home.mkdir()
    message = standing.refused(2, "submit", file, "--name", "x", "--env", "NOT_THERE")
    assert message == "--env NOT_THERE: no such variable is set here; set it, or write NOT_THERE=VALUE"
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.chdir(home)
    submitted = standing.json("submit", file, "--name", "told", "--env", "TOKEN", "--env", "PLAIN=x")
    told = home / "told"
    wait_for("the worker", lambda: told.exists() and told.read_text().count("\n") == 1)
    described = standing.described("told")
    assert (described.cwd, described.env) == (str(home), ["PLAIN", "TOKEN"])
    lock = standing.run_dir.lock_holder()
    assert lock is not None
    os.kill(int(lock), 9)
    os.kill(described.workers[0].pid, 9)
    wait_for("the replacement", lambda: told.read_text().count("\n") == 2)
    assert told.read_text() == f"{SECRET} {SECRET} x\n" * 2
    kept = standing.run_dir.environment(submitted["id"])
    # Its module's set-up of logging holds, although the worker has not imported the module.
    wait_for("its log", lambda: "INFO|prepared\n" * 2 in standing.ok("logs", "told").replace("[node-1:6700] ", ""))
    holding = [path for path in standing.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    # The module's own variable travels with its code.
    assert [path for path in holding if path.parent != standing.run_dir.code] == [kept]
    assert kept.stat().st_mode & 0o777 == 0o600
    standing.ok("kill", "told")
    wait_for("its files", lambda: not kept.exists())
    assert_untouched(standing)
