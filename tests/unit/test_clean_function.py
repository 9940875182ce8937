"""A cleaning function is loaded before Spark runs, and yet its file may use PySpark as it is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.clean_function import load_clean_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEAD = "from pyspark.sql import functions as F\n"
CLEAN = "def clean(rows):\n    return rows\n"


@pytest.mark.parametrize("line", ["@F.udf('string')\ndef low(text):\n    return text.lower()\n", "BAD = F.col('x')\n"])
def test_a_file_that_needs_a_session_is_imported_when_there_is_one(tmp_path: Path, line: str) -> None:
    file = tmp_path / "needs_session.py"
    file.write_text(HEAD + line + CLEAN)
    function = load_clean_function(f"{file}:clean")

    with pytest.raises(UsageError, match=r"needs_session\.py:2: "):
        function.call(cast("DataFrame", None))

    file.write_text(CLEAN)
    rows = cast("DataFrame", object())
    assert function.call(rows) is rows


def test_mistakes_that_are_not_for_want_of_a_session_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mistaken.py"
    file.write_text(HEAD + "import nothing_of_this_name\n" + CLEAN)
    with pytest.raises(UsageError, match=r"mistaken\.py:2: ModuleNotFoundError"):
        load_clean_function(f"{file}:clean")
