"""A topology file does not decide how the command ends: whatever it raises is one refusal that names it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.cli.commands import main
from squall.cli.given.loader import load_topology
from squall.engine.errors import UsageError
from squall.engine.report.document import strict_json

QUIET = "class Q({base}):\n    def __str__(self):\n        raise {worse}\n"
RAISES = {
    "surrogate": ("raise ValueError('a\\udc80')", "raised ValueError: a\\udc80"),
    "text raises": (QUIET.format(base="Exception", worse="RuntimeError") + "raise Q", "raised Q: (its text cannot be"),
    "no file in it": ("raise SyntaxError('s')", "raised SyntaxError: s"),
    "generator exit": ("raise GeneratorExit('g')", "raised GeneratorExit: g"),
}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    modules, path = dict(sys.modules), list(sys.path)
    yield tmp_path / "topology_file.py"
    for name in set(sys.modules) - set(modules):
        if name.endswith("topology_file"):
            del sys.modules[name]
    sys.path[:] = path


def refusal(file: Path, text: str, name: str = "") -> str:
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        load_topology(f"{file}{name}", [])
    return str(refused.value)


def test_what_stands_in_the_file_now_is_executed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for text in ("old", "new"):
        file.write_text(f"def topology():\n    raise ValueError('{text}')\n")
        os.utime(file, (1e9, 1e9))  # within one second, and of one size
        with pytest.raises(UsageError, match=f"raised ValueError: {text}"):
            load_topology(str(file), [])
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("case", RAISES)
def test_what_a_file_raises_is_told(file: Path, case: str) -> None:
    code, told = RAISES[case]
    line = len(code.splitlines())
    assert f"{file}:{line}: importing it {told}" in refusal(file, code)
    indented = "".join(f"    {line}\n" for line in code.splitlines())
    assert f"{file}:{1 + line}: topology() {told}" in refusal(file, f"def topology():\n{indented}")


PAIR = """
from squall import Config, TopologyBuilder, spout

@spout("n")
def numbers():
    return range(3)

builder = TopologyBuilder(Config(workers=4, max_attempts=2))
builder.set_spout("numbers", numbers)
pair = builder.build(), Config(workers=3, **{"shop.currency": "EUR"})
"""


@pytest.mark.parametrize(
    "defines", ["topology = pair", "def topology():\n    return pair", "def topology(*args):\n    return pair"]
)
def test_a_topology_and_a_config_may_be_a_global_or_returned(file: Path, defines: str) -> None:
    file.write_text(PAIR + defines + "\n")
    config = load_topology(str(file), []).topology.config
    assert (config.workers, config.max_attempts, config.extra) == (3, 2, {"shop.currency": "EUR"})


def test_a_pair_of_another_name_is_offered_and_found(file: Path) -> None:
    assert f"did you mean {file}:pair?" in refusal(file, PAIR)
    assert load_topology(f"{file}:pair", []).topology.config.workers == 3


@pytest.mark.parametrize(
    ("defines", "said"),
    [
        ("topology = (1, Config())", "; it must be a Topology, a Topology and a Config, or a function"),
        ("topology = [builder.build(), Config()]", "; it must be a Topology, a Topology and a Config, or a function"),
        ("def topology():\n    return 1", "; it must return a Topology (builder.build()), or a Topology and a Config"),
    ],
)
def test_what_is_no_topology_is_refused(file: Path, defines: str, said: str) -> None:
    assert refusal(file, f"{PAIR}{defines}\n").endswith(said)


def test_what_is_no_number_in_json_is_null() -> None:
    document = {"nan": float("nan"), "in": [1.5, (float("inf"), {"x": -float("inf")})], "text": "NaN", "yes": True}

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(strict_json(document, sort_keys=True), parse_constant=refuse)
    assert read == {"nan": None, "in": [1.5, [None, {"x": None}]], "text": "NaN", "yes": True}


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--nope"], 2)])
def test_a_topology_function_reads_its_arguments_by_argparse(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    file.write_text(
        "import argparse\ndef topology(args):\n    parser = argparse.ArgumentParser('mine')\n"
        "    parser.add_argument('--out', required=True)\n    parser.parse_args(args)\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["config", str(file), "--", *arguments])
    assert ended.value.code == code
    assert "usage: mine" in "".join(capsys.readouterr())
