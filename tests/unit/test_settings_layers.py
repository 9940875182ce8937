"""Settings have five places: each beats the next, a mistake is named where it stands, and docs/settings.md is true."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from squall import Config, Spout, TopologyBuilder, TopologyError
from squall.cli.commands import cli, main
from squall.cli.layers import layers_of, setting_variable
from squall.cli.settings_file import find, line_of, options_of, read
from squall.cli.variables import variable_of
from squall.engine.api.config import SETTINGS
from squall.testing import complete_topology

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]


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


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1), told
    return told.err.removeprefix("squall: ").removesuffix("\n")


def test_each_place_beats_the_next(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, target = "message_timeout_secs", "shop_of_test.py"
    assert config(capsys)[name] == (30.0, "default")
    toml = project / "squall.toml"
    toml.write_text(f"# first\n{name} = 4\n")
    assert config(capsys)[name] == (4.0, f"{toml}:2")
    assert config(capsys, target)[name] == (5.0, target)
    monkeypatch.setenv("SQUALL_MESSAGE_TIMEOUT_SECS", "6")
    assert config(capsys, target)[name] == (6.0, "SQUALL_MESSAGE_TIMEOUT_SECS")
    assert config(capsys, target, "--set", "topology.message.timeout.secs=7")[name] == (7.0, "--set")


def test_a_settings_file_is_found_beside_the_code(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pyproject.toml").write_text("[tool.squall]\nworkers = 2\n[tool.squall.run]\nnodes = 3\n")
    (project / "inner").mkdir()
    (project / "inner" / "pyproject.toml").write_text("[tool.other]\nx = 'tool.squall'\n")
    assert find(project / "inner") == project / "pyproject.toml"
    monkeypatch.chdir("/")
    shown = config(capsys, str(project / "shop_of_test.py"))
    assert shown["workers"] == (2, f"{project}/pyproject.toml:2")
    assert shown["squall run --nodes"] == (3, f"{project}/pyproject.toml:4")
    assert config(capsys)["workers"] == (1, "default")
    (project / "squall.toml").write_text("workers = 4\n")
    assert find(project / "inner") == project / "squall.toml"
    monkeypatch.setenv("SQUALL_SETTINGS", str(project / "pyproject.toml"))
    assert config(capsys)["workers"] == (2, f"{project}/pyproject.toml:2")


def test_the_file_of_the_page(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "squall.toml").write_text(TOML)
    (project / "src").mkdir()
    shown = config(capsys, "shop_of_test.py")
    assert shown["workers"][0] == 2
    assert shown["max_spout_pending"] == (None, f"{project}/squall.toml:3")
    assert shown["shop.currency"] == ("EUR", f"{project}/squall.toml:4")
    assert shown["message_timeout_secs"] == (5.0, "shop_of_test.py")
    assert shown["squall run --quiet"] == (True, f"{project}/squall.toml:8")
    assert shown["squall submit --app-dir"] == (str(project / "src"), f"{project}/squall.toml:11")


def test_options_come_from_file_and_variables(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "squall.toml").write_text("[run]\nnodes = 0\n[spark.plan]\njson = true\n")
    assert refusal(capsys, "run", "shop_of_test.py") == "--nodes is 0; allowed: an integer from 1 up"
    monkeypatch.setenv("SQUALL_RUN_NODES", "-3")
    assert refusal(capsys, "run", "shop_of_test.py") == "--nodes is -3; allowed: an integer from 1 up"
    assert refusal(capsys, "run", "shop_of_test.py", "--nodes", "-4").startswith("--nodes is -4;")
    assert config(capsys)["squall run --nodes"] == ("-3", "SQUALL_RUN_NODES")


def test_an_option_in_the_file_does_not_beat_the_code(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "squall.toml").write_text('[config]\nset = ["message_timeout_secs=4", "max_attempts=2"]\n')
    shown = config(capsys, "shop_of_test.py")
    assert shown["message_timeout_secs"] == (5.0, "shop_of_test.py")
    assert shown["max_attempts"] == (2, f"{project}/squall.toml:2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nworker = 2", "{file}:1: unknown setting x; settings are workers,"),
        ("x = 1\nworker = 2", "{file}:2: unknown setting worker; did you mean workers?"),
        ("topology.worker = 2", "{file}:1: unknown setting topology.worker; did you mean topology.workers?"),
        ("\n# c\nworkers = [\n 1,\n]", "{file}:3: setting workers is [1]; allowed: an integer from 1 to 1024"),
        ("shop.day = 2020-01-01", "{file}:1: setting shop.day is 2020-01-01; allowed: a number, a text,"),
        ("[run]\nnods = 1", "{file}:2: squall run has no option nods; did you mean nodes?"),
        ("[run]\nseed = 1", "{file}:2: seed is a setting, no option of squall run; write it above [run]"),
        ("[run]\nnodes = 'x'", "{file}:2: invalid value for '--nodes': 'x' is not a valid integer"),
        ("[run]\ninterval = 0", "{file}:2: --interval is 0; allowed: a number of seconds above 0"),
        ("[run]\nset = 'workers=1'", "{file}:2: option --set is 'workers=1'; allowed: a list"),
        ("[run]\nnodes = [2]", "{file}:2: option --nodes is [2]; allowed: a value"),
        ("[run]\nset = [['a=1']]", "{file}:2: option --set is [['a=1']]; allowed: a value"),
        ("workers = 2\n'topology.workers' = 3", "{file}:2: setting workers is given twice, by its name and by Storm's"),
        ("[run]\nquiet = 1", "{file}:2: option --quiet is 1; allowed: true or false"),
        ("[rn]\nnodes = 1", "{file}:1: unknown command [rn]; did you mean [run]?"),
        ("\n[tool.squall]\nworkers = 2", "{file}:2: [tool.squall] is for pyproject.toml; allowed here: its lines"),
        ("[tool.squall.run]\nnodes = 2", "[tool.squall] is for pyproject.toml; allowed here: its lines without"),
        ("[spark.plam]\njson = true", "{file}:1: unknown command [spark.plam]"),
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


def test_a_file_of_another_user_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "squall.toml"
    file.write_text("workers = 2\n")
    own = file.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    monkeypatch.setattr(Path, "stat", _owned_by(own + 2, Path.stat))
    said = refusal(capsys, "--settings", str(file), "list")
    assert said.startswith(f"{file} belongs to another user (uid {own + 2});")
    # Whoever owns the code may say how it runs.
    assert read(file, cli, own + 2).settings == {"workers": 2}


def _owned_by(uid: int, true_stat: object) -> object:
    def stat(path: Path, **options: object) -> os.stat_result:
        found = list(true_stat(path, **options))  # type: ignore[operator]
        found[4] = uid
        return os.stat_result(found)

    return stat


def test_every_command_warns_of_unknown_variables_but_not_of_those_that_have_a_reader(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LINK_FAULTS", "FAULT_POINTS", "TEST_SEED", "SUBMIT_WAIT", "SPARK_PLAN_JSON", "DEBUG", "EMPTY"):
        monkeypatch.setenv(f"SQUALL_{name}", "" if name == "EMPTY" else "1")
    # Docker and Kubernetes set these for a service of this name.
    for name in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP_ADDR", "UI_SERVICE_HOST"):
        monkeypatch.setenv(f"SQUALL_{name}", "1")
    monkeypatch.setenv("SQUALL_LINK_FAULT", "geheim")
    monkeypatch.setenv("SQUALL_SUBMIT_WAITS", "geheim")
    for arguments in (["faults"], ["list", "--dir", str(project / "none")]):
        with pytest.raises(SystemExit):
            main(arguments)
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("variable")]
        assert told == [
            "variable SQUALL_LINK_FAULT is no setting or option, and is not used; did you mean SQUALL_LINK_FAULTS?",
            "variable SQUALL_SUBMIT_WAITS is no setting or option, and is not used; did you mean SQUALL_SUBMIT_WAIT?",
        ]


@pytest.mark.parametrize("text", [
    "[submit]\nenv = 'TOKEN=geheim'", "[submit]\nenv = [['TOKEN=geheim']]", "[run]\nenv = { TOKEN = 'geheim' }",
])
def test_a_mistake_in_env_does_not_quote_its_value(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (project / "squall.toml").write_text(text)
    said = refusal(capsys, "list")
    assert "squall.toml:2: option --env is not as it must be; allowed: a list of texts" in said
    assert "geheim" not in said


def test_variables_with_mistakes_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQUALL_WORKER", "2")
    monkeypatch.setenv("SQUALL_XYZ", "2")
    with pytest.raises(SystemExit):
        main(["config"])
    told = capsys.readouterr().err
    assert told.splitlines() == [
        "variable SQUALL_WORKER is no setting or option, and is not used; did you mean SQUALL_WORKERS?",
        "variable SQUALL_XYZ is no setting or option, and is not used; squall config lists the settings",
    ]
    monkeypatch.delenv("SQUALL_WORKER")
    monkeypatch.delenv("SQUALL_XYZ")
    monkeypatch.setenv("SQUALL_RUN_NODE", "2")
    with pytest.raises(SystemExit):
        main(["run", "shop_of_test.py", "--nodes", "0"])
    told = capsys.readouterr().err.splitlines()[0]
    assert told == "variable SQUALL_RUN_NODE is no setting or option, and is not used; did you mean SQUALL_RUN_NODES?"
    monkeypatch.delenv("SQUALL_RUN_NODE")
    monkeypatch.setenv("SQUALL_RUN_NODES", "x")
    said = refusal(capsys, "run", "shop_of_test.py")
    assert "'x' is not a valid integer, from the variable SQUALL_RUN_NODES" in said
    monkeypatch.setenv("SQUALL_WORKERS", "x")
    assert refusal(capsys, "config") == "SQUALL_WORKERS: setting workers is 'x'; allowed: an integer from 1 to 1024"


def test_no_two_things_share_a_variable() -> None:
    context = click.Context(cli)
    every = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    commands = {name: one for name, one in every.items() if one is not None and not isinstance(one, click.Group)}
    assert len(commands) > 20
    variables = [variable_of(option, name) for name, command in commands.items() for option in options_of(command)]
    variables += [setting_variable(name) for name in SETTINGS]
    assert len(variables) == len(set(variables))


def test_every_option_reads_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    context, read = click.Context(cli), 0
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        inside = command.commands if isinstance(command, click.Group) else {"": command}
        for inner, one in inside.items():
            for option, found in options_of(one).items():
                if found.allow_from_autoenv and option != "dir":
                    variable = variable_of(option, f"{name} {inner}".strip())
                    monkeypatch.setenv(variable, "given")
                    assert found.resolve_envvar_value(click.Context(one)) == "given", variable
                    read += 1
    assert read > 100


def test_a_variable_holds_several_values_on_lines(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQUALL_CONFIG_SET", "shop.name=the first\nmax_attempts=3")
    shown = config(capsys)
    assert shown["shop.name"] == ("the first", "SQUALL_CONFIG_SET")
    assert shown["max_attempts"] == (3, "SQUALL_CONFIG_SET")


def test_one_setting_given_twice_by_options_is_refused_unless_the_values_agree(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--set", "workers=3", "--set", "topology.workers=2"]
    said = "setting workers is given twice: workers = 3 and topology.workers = 2; allowed: one value"
    assert refusal(capsys, "config", *both) == said
    assert refusal(capsys, "run", "shop_of_test.py", *both) == said
    said = "setting workers is 2 by --set and 4 by --workers; give one of them"
    assert refusal(capsys, "run", "shop_of_test.py", "--workers", "4", "--set", "topology.workers=2") == said
    # The same name again: the last one holds, as for any option.
    assert config(capsys, "--set", "workers=3", "--set", "workers=2")["workers"] == (2, "--set")
    assert config(capsys, *both, "--set", "topology.workers=3")["workers"] == (3, "--set")
    (project / "squall.toml").write_text('[config]\nset = ["workers=3", "topology.workers=2"]\n')
    assert "setting workers is given twice" in refusal(capsys, "config")


def test_the_command_line_wins_over_the_variable_of_another_option(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQUALL_CONFIG_SET", "workers=3")
    assert config(capsys, "--set", "topology.workers=2")["workers"] == (2, "--set")
    command = next(one for name, one in cli.commands.items() if name == "run")
    monkeypatch.setenv("SQUALL_RUN_WORKERS", "4")
    with command.make_context("run", ["shop_of_test.py", "--set", "workers=2"], auto_envvar_prefix="SQUALL") as context:
        layers = layers_of(context.params["settings"], workers=context.params["workers"])
    assert (layers.above["workers"], layers.origins["workers"]) == (2, "--set")


def test_a_byte_order_mark_is_no_mistake(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "squall.toml").write_bytes(b"\xef\xbb\xbfmax_attempts = 3\r\n")
    assert config(capsys)["max_attempts"] == (3, f"{project}/squall.toml:1")


def test_lines_of_keys() -> None:
    text = 'a = """\nb = 1\n"""\nb = [\n1,\n]\n\n# c\n[t]\nc = 1\n[t.u]\nd = {\n  "e" = 1 }\n'.replace("{\n  ", "{ ")
    found = {path: line_of(text, path) for path in [("a",), ("b",), ("t",), ("t", "c"), ("t", "u", "d")]}
    assert found == {("a",): 1, ("b",): 4, ("t",): 9, ("t", "c"): 10, ("t", "u", "d"): 12}


class _One(Spout):
    outputs = ("n",)
    exhausted = True

    def open(self, conf: dict[str, object], context: object, collector: object) -> None:
        self.conf = conf

    def next_tuple(self) -> None:
        print(self.conf["max_attempts"], self.conf["message_timeout_secs"])


def test_a_builder_carries_settings(capsys: pytest.CaptureFixture[str]) -> None:
    builder = TopologyBuilder(Config(max_attempts=3, message_timeout_secs=5))
    builder.set_spout("one", _One())
    complete_topology(builder.build(), config=Config(message_timeout_secs=9))
    assert capsys.readouterr().out.startswith("3 9.0\n")
    wrong = TopologyBuilder({"workers": 1})  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"the builder's config is {'workers': 1}; allowed: a Config"):
        wrong.build()


def test_what_was_given_stays_told_apart() -> None:
    config = Config(workers=1, **{"shop.x": 2})
    assert config == Config(**{"shop.x": 2})
    assert config.explicit() == {"workers": 1, "shop.x": 2}
    assert config.replace(**{"topology.workers": 3}).explicit() == {"workers": 3, "shop.x": 2}
