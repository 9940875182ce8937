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
    where = settings["package-dir"]
    return {name: ROOT / where.get(name, name.replace(".", "/")) for name in settings["packages"]}


def test_every_folder_with_code_is_installed() -> None:
    folders = {path.parent for room in (*ROOMS, "squall") for path in (ROOT / room).rglob("*.py")}
    assert set(installed().values()) == folders


def test_nothing_but_squall_is_installed() -> None:
    assert {name.partition(".")[0] for name in installed()} == {"squall"}
    assert all((folder / "__init__.py").is_file() for folder in installed().values())
