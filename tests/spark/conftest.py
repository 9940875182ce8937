"""One Spark session for the whole folder, as starting one takes seconds: `prepare` and `verify` use what is active.

Guarantees that it is stopped, its Java machine gone and its files deleted before the run's leak check looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.session import spark_session
from tests.spark.by_key import Sides

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(run_leaves_nothing: None) -> Iterator[SparkSession]:
    session = spark_session("squall tests")
    try:
        started = session.__enter__()
    except UsageError as error:
        pytest.skip(str(error))
    try:
        yield started
    finally:
        session.__exit__(None, None, None)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in put"
    path.mkdir()
    return path


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)
