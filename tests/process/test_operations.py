"""Every command of docs/operations.md runs, in the order in which it stands there, in one cluster."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator

import pytest

from tests.process.cli import ROOT, start
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

PAGE = (ROOT / "docs" / "operations.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


def test_the_page_has_every_command_of_a_standing_cluster() -> None:
    from squall.cli import STANDING

    assert {line.split()[1] for line in COMMANDS} == {command.name for command in STANDING}
    assert all(line.startswith("squall ") for line in COMMANDS)


def test_every_command_of_the_page(cluster: Standing) -> None:
    for line in COMMANDS:
        _, *arguments = shlex.split(line)
        if arguments[0] in ("nimbus", "supervisor"):
            run_until_interrupted(cluster, arguments)
            continue
        done = cluster.apart(*arguments)
        assert done.returncode == 0, (line, done.stderr)
        if "--json" in arguments:
            json.loads(done.stdout)
        if arguments[0] == "submit":
            name = arguments[arguments.index("--name") + 1]
            wait_for("the workers", lambda name=name: cluster.described(name)["acked"] > 0)


def run_until_interrupted(cluster: Standing, arguments: list[str]) -> None:
    def there() -> bool:
        if arguments[0] == "nimbus":
            return cluster.run("status").returncode == 0
        return "node-3" in cluster.json("status")["nodes"]

    with start(*arguments, SQUALL_DIR=str(cluster.path)) as process:
        try:
            wait_for(f"squall {arguments[0]} to run", there)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 0
