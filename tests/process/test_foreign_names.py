"""Files of the user's that are called like modules of ours, or of the standard library.

Guarantees: neither launcher nor daemons nor workers execute a file of the current directory that they did not mean, and
a topology's own `scheduler.py` is the one that its components get.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli import environment

SQUALL = Path(sys.executable).with_name("squall")

HELLO = '''
from scheduler import greet
from squall import BasicBolt, Spout, TopologyBuilder


class Names(Spout):
    outputs = ("name",)

    def open(self, conf, context, collector):
        self.collector, self.names = collector, ["Ann", "Bob"]

    def next_tuple(self):
        if self.names:
            name = self.names.pop()
            self.collector.emit((name,), message_id=name)
        self.exhausted = not self.names


class Greet(BasicBolt):
    def execute(self, tup, collector):
        print(greet(tup["name"]))


def topology():
    builder = TopologyBuilder()
    builder.set_spout("names", Names())
    builder.set_bolt("greet", Greet()).shuffle_grouping("names")
    return builder.build()
'''


def without_checkout() -> dict[str, str]:
    """An environment in which the repository itself is not on the import path: as users have it."""
    return {name: value for name, value in environment().items() if name != "PYTHONPATH"}


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A directory, not named in ASCII, with a topology, a module of its own called `scheduler`, and files that must not
    be executed."""
    (tmp_path := tmp_path / "Größe").mkdir()
    (tmp_path / "hello.py").write_text(HELLO)
    (tmp_path / "scheduler.py").write_text("def greet(name):\n    return f'hello {name}'\n")
    for name in ("engine", "ipc", "pipeline", "queue", "sqlite3", "uuid", "zipfile"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n")
    return tmp_path


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_files_called_like_our_modules_are_left_alone(crowded: Path, locale: dict[str, str]) -> None:
    done = subprocess.run(
        [str(SQUALL), "run", "hello.py", "--workers", "2", "--json"], cwd=crowded, env=without_checkout() | locale,
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["acked"] == 2
    assert "hello Ann" in done.stderr
    assert not (crowded / "executed").exists(), (crowded / "executed").read_text()
