"""What is installed, as pyproject.toml says it: one package, with every folder of ours in it.

The wheel itself is built and used by `.ci/check_package.sh`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("engine", "ipc", "pipeline", "scheduler")


def installed() -> dict[str, Path]:
    """Package -> folder of the repository."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return {name: folder_of(name, settings["package-dir"]) for name in settings["packages"]}


def folder_of(name: str, where: dict[str, str]) -> Path:
    """As setuptools finds it: what is not mapped lies in its parent's folder."""
    parent, _, last = name.rpartition(".")
    return ROOT / where[name] if name in where else (folder_of(parent, where) if parent else ROOT) / last


def test_every_folder_with_code_is_installed() -> None:
    folders = {path.parent for room in (*ROOMS, "squall") for path in (ROOT / room).rglob("*.py")}
    assert set(installed().values()) == folders


def test_nothing_but_squall_is_installed() -> None:
    assert {name.partition(".")[0] for name in installed()} == {"squall"}
    assert all((folder / "__init__.py").is_file() for folder in installed().values())
