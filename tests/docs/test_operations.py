"""Every command of docs/operations.md runs, in the order in which it stands there, in one cluster."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from squall.cli.commands import STANDING
from tests.docs.pages import Page
from tests.process.cli import environment, start
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

PAGE = Page("docs/operations.md")


def test_the_page_has_every_command_of_a_standing_cluster() -> None:
    assert {line.split()[0] for line in PAGE.commands} - {"doctor"} == set(STANDING)
    assert len(PAGE.commands) == "".join(PAGE.of("")).count("\n")


def test_every_command_of_the_page(cluster: Standing) -> None:
    for line in PAGE.commands:
        arguments = shlex.split(line)
        if arguments[0] in ("nimbus", "supervisor"):
            run_until_interrupted(cluster, arguments)
            continue
        done = cluster.run(*arguments)
        assert done.returncode == 0, (line, done.stderr)
        if "--json" in arguments:
            json.loads(done.stdout)
        if arguments[0] == "submit" and "--remove-when-drained" not in arguments:
            name = arguments[arguments.index("--name") + 1]
            wait_for("the workers", lambda name=name: cluster.described(name).acked > 0)


def test_the_program_of_the_page(cluster: Standing, tmp_path: Path) -> None:
    PAGE.save(tmp_path)
    Page("docs/functions.md").save(tmp_path)
    cluster.up(slots=2)
    cluster.ok("submit", tmp_path / "squares.py", "--name", "words", "--", tmp_path / "words.txt")
    wait_for("the end of words", lambda: cluster.described("words").status == "FINISHED")
    done = subprocess.run(
        [sys.executable, tmp_path / "connect.py"], env=environment(SQUALL_DIR=str(cluster.path)), capture_output=True,
        text=True, check=False, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "10"
    assert second in ("['words', 'squares'] FINISHED", "['words'] FINISHED")


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
