"""Settings have five places: each beats the next, a mistake in a file is named, and docs/settings.md is true."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from squall.cli.commands import cli, main
from tests.unit.test_wrong_commands import refusal

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
NAME = "message_timeout_secs"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SQUALL_")]:
        monkeypatch.delenv(name)
    path = list(sys.path)
    (tmp_path / "shop_of_test.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("shop_of_test", None)
    sys.path[:] = path


def config(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[object, str]]:
    """What `squall config` shows: setting -> (value, origin)."""
    with pytest.raises(SystemExit) as ended:
        main(["config", *arguments, "--show-origin", "--json"])
    told = capsys.readouterr()
    sys.modules.pop("shop_of_test", None)
    assert ended.value.code == 0, told.err
    return {name: (row["value"], row["origin"]) for name, row in json.loads(told.out).items()}


def test_of_any_places_the_first_one_holds(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = project / "squall.toml"
    for by_option, by_own_variable, by_variable, by_code, by_table, in_file in itertools.product((0, 1), repeat=6):
        file = ("topology.message.timeout.secs = 4\n" if in_file else "") + "[config]\n"
        toml.write_text(file + (f'set = "{NAME}=4.5"\n' if by_table else ""))
        monkeypatch.setenv("SQUALL_MESSAGE_TIMEOUT_SECS", "6" if by_variable else "")
        monkeypatch.setenv("SQUALL_CONFIG_SETTINGS", f"shop.name=the {NAME}=6.5" if by_own_variable else "")
        arguments = ["shop_of_test.py"] if by_code else []
        arguments += ["--set", "topology.message.timeout.secs=7"] if by_option else []
        if by_option:
            said = (7.0, "option")
        elif by_own_variable or by_variable:
            said = (6.5 if by_own_variable else 6.0, "variable")
        elif by_code:
            said = (5.0, "code")
        else:
            # Click takes an option from one place, so the table counts only if its variable is not set.
            said = (4.5 if by_table else 4.0, "settings file") if by_table or in_file else (30.0, "default")
        assert config(capsys, *arguments)[NAME] == said, (arguments, file)


def test_a_settings_file_is_found_beside_the_code(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pyproject.toml").write_text("[tool.squall]\nworkers = 2\n[tool.squall.run]\nnodes = 0\n")
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 'tool.squall'\n")
    monkeypatch.chdir(inner)
    assert config(capsys)["workers"] == (2, "settings file")
    monkeypatch.chdir("/")
    assert config(capsys, str(project / "shop_of_test.py"))["workers"] == (2, "settings file")
    assert "'--nodes': 0 is not in the range x>=1" in refusal(capsys, "run", str(project / "shop_of_test.py"))
    assert config(capsys)["workers"] == (1, "default")
    (project / "squall.toml").write_text("workers = 4\n")
    assert config(capsys, str(project / "shop_of_test.py"))["workers"] == (4, "settings file")


def test_the_file_of_the_page(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "squall.toml").write_text(TOML)
    shown = config(capsys, "shop_of_test.py")
    assert [shown[name][0] for name in ("workers", "max_spout_pending", "shop.currency", NAME)] == [2, None, "EUR", 5.0]
    # The path is relative to the file.
    assert f"Directory '{project}/src' does not exist" in refusal(capsys, "submit", "shop.x", "--name", "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "{file}: unknown setting x; settings are workers,"),
        ("topology.worker = 2", "{file}: unknown setting topology.worker; did you mean topology.workers?"),
        ("workers = [\n 1,\n]", "{file}: setting workers is [1]; allowed: an integer from 1 to 1024"),
        ("workers = 2\n'topology.workers' = 3", "{file}: setting workers is given twice: workers = 2 and topology.w"),
        ("[run]\nnods = 1", "{file}: squall run has no option nods; did you mean nodes?"),
        ("[a", "{file} is no TOML: Expected ']' at the end of a table declaration"),
    ],
)
def test_a_mistake_in_the_file_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = project / "squall.toml"
    file.write_text(text)
    for command in (["run", "shop_of_test.py"], ["list"]):
        assert said.format(file=file) in refusal(capsys, *command)


@pytest.mark.parametrize(("wrong", "right", "command"), [
    ("SQUALL_MAX_ATEMPTS", "SQUALL_MAX_ATTEMPTS", "list"), ("SQUALL_RUN_NODE", "SQUALL_RUN_NODES", "run"),
    ("SQUALL_DEAD_LETTERS_DIRECTRY", "SQUALL_DEAD_LETTERS_DIRECTORY", "dead-letters"),
    ("SQUALL_DR", "SQUALL_DIR", "list"),
])
def test_a_variable_that_is_nearly_read_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    wrong: str, right: str, command: str,
) -> None:
    for others in ("SQUALL_RUN_NODES", "SQUALL_TEST_SEED", "SQUALL_DIR", "SQUALL_MAX", "SQUALL_RUN_DIR"):
        monkeypatch.setenv(others, "1")
    assert config(capsys)["max_attempts"] == (None, "default")
    monkeypatch.setenv(wrong, "3")
    assert refusal(capsys, command, "x") == f"{wrong} is no setting or option; did you mean {right}?"


def test_a_file_of_another_user_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "squall.toml"
    file.write_text("workers = 2\n")
    own, true_stat = file.stat().st_uid, Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = list(true_stat(path, **options))
        found[4] = own + (2 if path == file else 1)
        return os.stat_result(found)

    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    monkeypatch.setattr(Path, "stat", stat)
    assert refusal(capsys, "list").startswith(f"{file} belongs to another user;")


def commands() -> Iterator[tuple[str, click.Command]]:
    """(words, command) of every command."""
    inside: list[tuple[str, click.Command]] = [("", cli)]
    for words, command in inside:
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = {name: command.get_command(context, name) for name in command.list_commands(context)}
            inside += [(f"{words} {name}".strip(), one) for name, one in found.items() if one is not None]
        yield words, command


def test_options_are_few_and_help_fits_a_screen() -> None:
    options = 0
    for words, command in commands():
        assert command.name == words.rpartition(" ")[2] or not words
        options += sum(isinstance(one, click.Option) for one in command.params)
        context = click.Context(command, info_name=f"squall {words}", terminal_width=80)
        text = command.get_help(context)
        assert len(text.splitlines()) <= (40 if words else 50), words
        if isinstance(command, click.Group):
            assert set(command.list_commands(context)) <= set(text.split())
    assert options <= 163
