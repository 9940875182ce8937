"""What is told of Spark's errors, by their texts."""

from __future__ import annotations

import pytest

from squall.pipeline.spark_errors import SilentTask, silent_task

ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 2 in stage 17.0 failed 4 times, most "
    "recent failure: Lost task 2.3 in stage 17.0 (TID 31) (127.0.0.1 executor 1): "
)


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", SilentTask(17, 2)),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", SilentTask(17, 2)),
        ("org.apache.spark.api.python.PythonException: Traceback (most recent call last):", None),
    ],
)
def test_a_task_whose_process_died_without_a_word_is_known(cause: str, found: SilentTask | None) -> None:
    assert silent_task(ABORTED + cause) == found


def test_an_error_without_a_task_is_none() -> None:
    assert silent_task("Python worker exited unexpectedly (crashed)") is None
