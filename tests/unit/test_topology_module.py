"""A topology is named by its module, as well as by its file, and is imported under its real name. Its file does not
decide how the command ends: whatever it raises is one refusal that names it."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall import Config, UsageError
from squall.cli.commands import main
from squall.cli.loader import Loaded, load_topology
from squall.cli.options import read_target
from squall.engine.report.document import strict_json
from squall.scheduler.client.topology_code import pack

PARTS = """
from squall import Spout
from .settings import WORD
class One(Spout):
    outputs = (WORD,)
"""
TOPOLOGY = """
from squall import TopologyBuilder
from .parts import One
builder = TopologyBuilder()
builder.set_spout("one", One())
topology = builder.build()
"""


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """What a test imports is forgotten."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("shop", "plain", "shelf", "beside") or name.endswith("topology_file"):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in the src/ layout, as the current directory; the package's name is this test's own."""
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "settings.py").write_text("WORD = 'word'\n")
    (package / "parts.py").write_text(PARTS)
    (package / "topology.py").write_text(TOPOLOGY)
    (package / "late.py").write_text("")
    (package / "words.txt").write_text("a b\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(target: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_topology(target, [], "src")
    return str(caught.value)


def spout_module(loaded: Loaded) -> str:
    return type(loaded.topology.components["one"].component).__module__


@pytest.mark.parametrize("target", ["shop.topology", "shop.topology:topology", "src/shop/topology.py"])
def test_a_module_has_its_real_name(project: Path, target: str) -> None:
    loaded = load_topology(target, [], "src")
    assert spout_module(loaded) == "shop.parts"
    assert (loaded.script, loaded.root) == (None, project / "src")
    assert str(project / "src") in sys.path
    assert str(project / "src" / "shop") not in sys.path


def test_app_dir_says_where_modules_are(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match=r"there is no file shop\.topology, and no module 'shop'; see --app-dir"):
        load_topology("shop.topology", [])
    assert spout_module(load_topology("shop.topology", [], str(project / "src"))) == "shop.parts"
    with pytest.raises(UsageError, match=r"shop\.topology:topology is a Topology and takes no arguments, but got x"):
        load_topology("shop.topology", ["x"])


def test_app_dir_makes_folders_packages(project: Path) -> None:
    (project / "src" / "shelf").mkdir()
    (project / "src" / "shelf" / "books.py").write_text("from .more import topology\n")
    (project / "src" / "shelf" / "more.py").write_text(TOPOLOGY.replace("from .parts", "from shop.parts"))
    loaded = load_topology("src/shelf/books.py", [], "src")
    assert (loaded.script, sys.modules["shelf.books"].topology) == (None, loaded.topology)


def test_a_script_is_no_module(project: Path) -> None:
    (project / "plain.py").write_text(TOPOLOGY.replace("from .parts", "from shop.parts"))
    loaded = load_topology("plain.py", [], "src")
    assert loaded.script is sys.modules["plain"]
    assert loaded.root == project


def test_a_package_itself_may_hold_the_topology(project: Path) -> None:
    code = "def topology():\n    from .topology import topology as t\n    return t\n"
    (project / "src" / "shop" / "__init__.py").write_text(code)
    loaded = load_topology("shop", [], "src")
    assert (spout_module(loaded), loaded.root) == ("shop.parts", project / "src")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop.topolgy", "there is no file shop.topolgy, and no module 'shop.topolgy'; see --app-dir"),
        ("shop.settings", "shop.settings defines no 'topology'"),
        ("src", "topology file src is no regular file"),
        ("shop.late.py", "topology file shop.late.py does not exist"),
    ],
)
def test_a_module_that_is_not_there_is_named(project: Path, target: str, said: str) -> None:
    assert said in refused(target)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nowhere", "late.py:1: importing it raised ModuleNotFoundError: No module named 'nowhere'"),
        ("from . import nowhere", "late.py:1: importing it raised ImportError: cannot import name 'nowhere'"),
        ("raise SystemExit(0)", "late.py:1: importing it raised SystemExit: 0"),
        ("x = (", "late.py:1: SyntaxError: '(' was never closed"),
    ],
)
def test_errors_of_a_modules_own_code_name_its_line(project: Path, code: str, said: str) -> None:
    (project / "src" / "shop" / "late.py").write_text(code)
    assert said in refused("shop.late")


def test_a_name_that_is_taken_is_told(project: Path) -> None:
    (project / "json").mkdir()
    for file in ("__init__", "decoder"):
        (project / "json" / f"{file}.py").write_text("")
    with pytest.raises(UsageError, match=r"json/decoder.py is json.decoder by the folders .* but Python imports /"):
        load_topology("json/decoder.py", [])


def test_names_that_cannot_be_modules_are_scripts(tmp_path: Path) -> None:
    folder = tmp_path / "not-a-name"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "file.py").write_text("")
    assert read_target(str(folder / "file.py")).is_script
    (tmp_path / "odd-name.py").write_text("")
    assert read_target(str(tmp_path / "odd-name.py"), str(tmp_path)).is_script


def test_a_package_travels_whole(project: Path) -> None:
    (project / "beside").mkdir()
    (project / "beside" / "alone.py").write_text("")
    (project / "src" / "shop" / "settings.py").write_text("from beside import alone\nWORD = 'word'\n")
    sys.path.append(str(project))
    loaded = load_topology("shop.topology", [], str(project / "src"))
    archive = zipfile.ZipFile(io.BytesIO(pack(loaded.topology, Config(), None, loaded.root).archive))
    names = {"__init__.py", "late.py", "parts.py", "settings.py", "topology.py", "words.txt"}
    assert set(archive.namelist()) == {"shop/", *(f"shop/{name}" for name in names)}


def test_a_folder_without_init_is_a_package_in_the_archive(project: Path, tmp_path: Path) -> None:
    (project / "beside").mkdir()
    (project / "beside" / "alone.py").write_text("HERE = True\n" + TOPOLOGY.replace("from .parts", "from shop.parts"))
    sys.path.append(str(project / "src"))
    loaded = load_topology("beside.alone", [])
    archive = tmp_path / "code"
    archive.write_bytes(pack(loaded.topology, Config(), None, loaded.root).archive)
    del sys.modules["beside.alone"], sys.modules["beside"]
    sys.path.remove(str(project))
    sys.path.insert(0, str(archive))
    assert spout_module(load_topology("beside.alone", [], "src")) == "shop.parts"
    assert str(sys.modules["beside.alone"].__file__).startswith(str(archive))


# ---- what a file raises, and what it may define ----

QUIET = "class Q({base}):\n    def __str__(self):\n        raise {worse}\n"
RAISES = {
    "surrogate": ("raise ValueError('a\\udc80')", "raised ValueError: a\\udc80"),
    "text raises": (QUIET.format(base="Exception", worse="RuntimeError") + "raise Q", "raised Q: (its text cannot be"),
    "no file in it": ("raise SyntaxError('s')", "raised SyntaxError: s"),
    "generator exit": ("raise GeneratorExit('g')", "raised GeneratorExit: g"),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topology_file.py"


def refusal(file: Path, text: str) -> str:
    file.write_text(text)
    return refused(str(file))


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
    document = {"nan": float("nan"), "in": [1.5, (float("inf"), {"x": -float("inf")})], "text": "NaN"}
    read = json.loads(strict_json(document, sort_keys=True), parse_constant=pytest.fail)
    assert read == {"nan": None, "in": [1.5, [None, {"x": None}]], "text": "NaN"}


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
