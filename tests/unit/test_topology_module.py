"""A topology is named by its module, as well as by its file, and is imported under its real name."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.cli.given.loader import Loaded, load_topology
from squall.cli.given.topology_target import read_target
from squall.engine.api.config import Config
from squall.engine.errors import UsageError
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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    modules, path = dict(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - set(modules):
        if name.partition(".")[0] in ("shop", "plain", "shelf", "beside"):
            del sys.modules[name]
    sys.path[:] = path


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


def test_a_function_of_a_near_name_is_suggested(project: Path) -> None:
    (project / "app.py").write_text("def orders(args):\n    raise AssertionError\n")
    with pytest.raises(UsageError, match=r"app.py defines no 'order'; .* or a Topology; did you mean .*:orders\?"):
        load_topology(f"{project}/app.py:order", [])


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
    with pytest.raises(UsageError) as refused:
        load_topology(target, [], "src")
    assert said in str(refused.value)


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
    with pytest.raises(UsageError) as refused:
        load_topology("shop.late", [], "src")
    assert said in str(refused.value)


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
