"""One Spark session for the whole folder, as starting one takes seconds: `prepare` and `verify` use what is active.

Guarantees that it is stopped, its Java machine gone and its files deleted before the run's leak check looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from squall.pipeline.session import spark_session
from tests.needs import require
from tests.spark.by_key import Sides

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    require("java")


@pytest.fixture(scope="session")
def spark(run_leaves_nothing: None, java: None) -> Iterator[SparkSession]:
    with spark_session("squall tests") as started:
        # Each stage of an adaptive query is a job of its own: a third of the time here, where rows are few.
        started.conf.set("spark.sql.adaptive.enabled", "false")
        yield started


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in put"
    path.mkdir()
    return path


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)
