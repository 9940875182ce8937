"""What must not be in any file of the repository, and what must.

Guarantees: no path of the machine something was written on, no package registry's host, no note to oneself in product
code, no file outside the known folders; the change log tells of this version.

Relies on: `git ls-files` for what belongs to the repository, or the folders themselves where there is no git.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.source import PRODUCT, ROOT

FOLDERS = (*PRODUCT, "examples", "tests", "benchmarks", "docs", ".ci")
FILES = ("pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")

# Put together from parts, so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(
    r"(?<![\w.-])/(" + r"root/|(home|Users)/[A-Za-z_][\w.-]*/)|"
    + "|".join(re.escape(f"{path}/") for path in (ROOT, Path.home()) if len(path.parts) > 2)
)
REGISTRY_HOSTS = re.compile(
    r"(py" + r"pi|npmjs|crates|pythonhosted|maven|maven\.apache)\.(org|io|com)|deb\.debian\.org|proxy\.golang\.org"
)
NOTES = re.compile(r"\b(TO" + "DO|FIX" + "ME|NotImplemented" + r"Error)\b")


def repository_files() -> list[str]:
    """Relative paths of all that is or is about to be committed."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        return sorted({path for path in listed.split("\0") if path and (ROOT / path).is_file()})
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    paths = (*inside, *(ROOT / name for name in FILES))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths if path.is_file() and path.suffix != ".pyc")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Path -> content of every text file."""
    contents = {path: (ROOT / path).read_bytes() for path in repository_files()}
    return {path: content.decode(errors="replace") for path, content in contents.items() if b"\0" not in content}


def hits(pattern: re.Pattern[str], text: str, path: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := pattern.search(line):
            yield f"{path}:{number}: {found.group()}"


@pytest.mark.parametrize(
    ("pattern", "folders"), [(MACHINE_PATHS, ("",)), (REGISTRY_HOSTS, ("",)), (NOTES, PRODUCT)],
    ids=["path of a machine", "host of a package registry", "note to oneself in product code"],
)
def test_nothing_is_there_that_must_not_be(
    pattern: re.Pattern[str], folders: tuple[str, ...], texts: dict[str, str]
) -> None:
    looked_at = {path: text for path, text in texts.items() if path.startswith(folders)}
    found = [hit for path, text in looked_at.items() for hit in hits(pattern, text, path)]
    assert looked_at
    assert not found, "\n" + "\n".join(found)


def test_nothing_outside_the_known_folders() -> None:
    tops = {path.partition("/")[0] for path in repository_files()}
    assert {top for top in tops if not top.startswith(".")} <= {*FOLDERS, *FILES}


def test_every_package_is_installed() -> None:
    folders = [path.removesuffix("/__init__.py") for path in repository_files() if path.endswith("/__init__.py")]
    product = {folder.removeprefix("squall/") for folder in folders if folder.partition("/")[0] in PRODUCT} - {"squall"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    names = {"squall", *("squall." + folder.replace("/", ".") for folder in product)}
    assert sorted(settings["packages"]) == sorted(names)


def test_every_product_package_says_it_is_typed() -> None:
    assert [package for package in PRODUCT if not (ROOT / package / "py.typed").is_file()] == []


def test_change_log_tells_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^## (Unreleased|.*{re.escape(version)})", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_no_folder_of_the_product_has_more_files_than_a_reader_takes_in() -> None:
    files = [Path(path) for path in repository_files() if path.endswith(".py") and not path.endswith("__init__.py")]
    folders = Counter(str(path.parent) for path in files if path.parts[0] in PRODUCT)
    assert {folder: number for folder, number in folders.items() if number > 20} == {}
