"""What the tests of `squall verify LEFT RIGHT --by KEY` share: sides on disk, and the command's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall.cli.data.verify import verify_command
from squall.engine.errors import UsageError
from tests.schemas import mistakes


class Sides:
    """Writes both sides and runs the command."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def parquet(self, name: str, **columns: Any) -> Path:
        # Only here, as every test of this folder imports this page.
        import pyarrow
        from pyarrow import parquet

        path = self.base / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table(columns), path)
        return path

    def json(self, name: str, *values: str) -> Path:
        """Rows k=0, 1 ... with the values as they are written in JSON."""
        return self.text(f"{name}.jsonl", "".join(f'{{"k":{k},"v":{value}}}\n' for k, value in enumerate(values)))

    def text(self, name: str, text: str) -> Path:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def command(left: Path, right: Path, *options: str) -> Result:
    return CliRunner().invoke(verify_command, [str(left), str(right), *options], catch_exceptions=False)


def document(left: Path, right: Path, *options: str) -> dict[str, Any]:
    done = command(left, right, "--json", *options)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if found["passed"] else 1)
    assert mistakes(found) == []
    return found


def kinds(left: Path, right: Path, *options: str) -> dict[str, int]:
    """The number of keys of each kind, where it is not 0."""
    return {kind: number for kind, number in document(left, right, *options)["keys"].items() if number}


def refusal(left: Path, right: Path, *options: str) -> str:
    with pytest.raises(UsageError) as caught:
        command(left, right, *options)
    said = str(caught.value)
    assert "\n" not in said
    assert "\tat " not in said
    return said
