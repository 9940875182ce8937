"""Wrong use of any command: exit code 2 and one line that names the thing, the value and what is allowed."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from squall.cli.commands import main
from squall.scheduler.client.job import Gone

NAMES = "examples/names.py"
CHAOS = ("chaos", "tests/chaos/chaos_parts.py:numbers")
INVALID = "invalid value for"
DEEP = "[" * 100_000


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1), told
    return told.err.removeprefix("squall: ").removesuffix("\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nope",), "no such command 'nope' (see `squall --help`)"),
        (("run",), "missing argument 'FILE[:NAME]' (see `squall run --help`)"),
        (
            ("run", NAMES, "--workers", "a\nb"),
            f"{INVALID} '--workers': 'a\\nb' is not a valid integer (see `squall run --help`)",
        ),
        (("run", NAMES, "--drain-secs", "nan"), f"{INVALID} '--drain-secs': nan is not a number of seconds from 0 to"),
        (("run", NAMES, "--dir", ""), f"{INVALID} '--dir': '' is no path of a file or directory"),
        (("run", NAMES, "--set", f"workers={DEEP}"), "setting workers is '[[["),
        (("run", "x" * 70), "the file's name cannot be the topology's, choose one with --name: a topology name 'xxx"),
        (("run", f"{NAMES}:"), f"{NAMES}: is not understood; write FILE or FILE:NAME"),
        (("up", "--slots", "0"), "slots is 0; allowed: an integer from 1 up"),
        (("rebalance", "x", "-e", "a=" + "9" * 5000), "-e 'a=999"),
        (("kill",), "give either the NAME of a topology or --unknown"),
        (("run", NAMES, "--master", "local"), "--master is for --on spark, not for a cluster"),
        (("run", NAMES, "--local", "--fault", "kill nimbus"), "--fault is for a cluster, not for --local"),
        ((*CHAOS, "--seed", "1", "--seeds", "0"), f"{INVALID} '--seeds': 0 is not in the range 1<=x<=1000000"),
        ((*CHAOS, "--seed", "1", "--mix", "meteor"), "mix 'meteor' is unknown; allowed: all, process"),
        ((*CHAOS, "--seed", "1", "--for", "3 parsecs"), "duration '3 parsecs'"),
        ((*CHAOS, "--seed", "1", "--sink", "numbers"), "sink 'numbers' is no bolt of this topology; its bolts: halves"),
        ((*CHAOS, "--seed", "1", "--key", NAMES), f"'{NAMES}' names no function; write FILE:FUNCTION"),
        (CHAOS, "missing option '--seed' (see `squall chaos --help`)"),
        (("run", "examples/groupings.py", "--on", "spark"), "on Spark, 1 of 10 parts of this topology differ, such as"),
    ],
)
def test_one_line(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, *arguments).startswith(said)


def test_without_ackers_there_is_no_proof(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*CHAOS, "--seed", "1", "--set", "ackers=0"])
    assert ended.value.code == 2
    assert "squall: setting ackers is 0: nothing is tracked" in capsys.readouterr().err


def test_a_file_in_place_of_a_directory_or_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, pipe = tmp_path / "file", tmp_path / "pipe.py"
    file.touch()
    os.mkfifo(pipe)
    for command in (("list",), ("down",), ("logs", "x")):
        told = refusal(capsys, *command, "--dir", str(file))
        assert told == f"{file} is not a directory (links are not followed)"
    assert refusal(capsys, "run", str(pipe), "--name", "x") == f"topology file {pipe} is no regular file"


class Vanished:
    """A topology that another command removes between two steps of this one."""

    id, record = "x-1-0a0b0c0d", SimpleNamespace(conf={"message_timeout_secs": 30}, successor=None)

    def kill(self, *_: object) -> NoReturn:
        raise Gone("topology x-1-0a0b0c0d is gone")


def test_a_topology_that_another_command_kills_is_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.cli.steering.topologies.job_of", lambda *_: contextlib.nullcontext(Vanished()))
    with pytest.raises(SystemExit) as ended:
        main(["kill", "x"])
    assert ended.value.code == 0
    assert capsys.readouterr() == ("x is gone: another command has removed it, or it has left by itself\n", "")


class Full(io.StringIO):
    """A stream to a disk without room."""

    def write(self, _: str) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("stream", [None, Full()])
def test_without_a_stderr_the_exit_code_is_still_right(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(SystemExit) as ended:
        main(["run", "nowhere.py"])
    assert ended.value.code == 2


def test_a_stdout_that_is_full_is_named_and_a_closed_one_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stdout, code, said in ((Full(), 1, "squall: stdout: No space left on device\n"), (None, 0, "")):
        monkeypatch.setattr(sys, "stdout", stdout)
        for command in (["faults"], ["faults", "--json"], ["config"]):
            with pytest.raises(SystemExit) as ended:
                main(command)
            assert (ended.value.code, capsys.readouterr().err) == (code, said)
