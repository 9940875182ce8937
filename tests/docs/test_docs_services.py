"""docs/services.md: the command of its unit is understood, and its image holds what the package needs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib

import psutil
import pytest

from tests.docs.pages import understood
from tests.process.cli import ROOT, command, environment
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

PAGE = (ROOT / "docs/services.md").read_text()
DOCKERFILE = (ROOT / "docs/docker/Dockerfile").read_text()
INSTRUCTIONS = [line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if line and line[0] != "#"]
FIRST_PROCESS = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""As in a container: the command after it has process number 1, and inherits orphans."""


def instructions(name: str) -> list[str]:
    return [rest for found, rest in INSTRUCTIONS if found == name]


def test_the_command_of_the_unit_is_understood() -> None:
    [words] = re.findall(r"^ExecStart=.* -m squall (.*)$", PAGE, re.MULTILINE)
    [stop_secs] = re.findall(r"TimeoutStopSec=(\d+)", PAGE)
    assert understood(*shlex.split(words)).params["drain_secs"] < int(stop_secs)


def test_the_image_gets_every_package_and_what_builds_them() -> None:
    copied = [word for rest in instructions("COPY") if "--from" not in rest for word in rest.split()[:-1]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {path.name for path in (ROOT / "squall").iterdir() if path.is_symlink()} | {"squall"}
    assert set(copied) == rooms | {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert all((ROOT / word).exists() for word in copied)


def test_the_commands_of_the_image_are_there() -> None:
    [entry], [start], [health] = (instructions(name) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    assert json.loads(entry) == ["squall"]
    asked, other = health[health.index("CMD ") + 4 :].split(" || ")
    assert other == "exit 1"
    for words in (json.loads(start), shlex.split(asked)[1:]):
        understood(*words)


def test_as_first_process_it_reaps_orphans_and_sigterm_drains(cluster: Standing) -> None:
    if not shutil.which("unshare") or subprocess.run([*FIRST_PROCESS, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make process namespaces")
    arguments = [*FIRST_PROCESS, *command("up", "--slots", "1")]
    variables = environment(SQUALL_DIR=str(cluster.path))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, cwd=ROOT, env=variables, **pipes) as unshare:
        try:
            assert unshare.stdout is not None
            assert "runs in" in unshare.stdout.readline()
            [first] = psutil.Process(unshare.pid).children()
            [keeper] = first.children()
            [nimbus] = [child for child in keeper.children() if "nimbus" in " ".join(child.cmdline())]
            keeper.kill()
            # Now an orphan, which the next keeper replaces.
            wait_for("the end of the keeper", lambda: not keeper.is_running())
            nimbus.kill()
            wait_for("the end of Nimbus", lambda: not nimbus.is_running())
            log = cluster.run_dir.daemon_log("supervisor-node-1")
            wait_for("the next one", lambda: log.read_text().count("registered with Nimbus") >= 2)
            first.terminate()
            _, err = unshare.communicate(timeout=120)
        finally:
            unshare.kill()
    assert unshare.returncode == 0, err
