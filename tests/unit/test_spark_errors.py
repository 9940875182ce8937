"""What is told of Spark's errors, by their texts."""

from __future__ import annotations

import pytest

from squall.pipeline.spark_errors import InputTrouble, SilentTask, input_trouble, silent_task

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


CALL = "An error occurred while calling o174.collectToPython.\n: org.apache.spark.SparkException: "
READ = f"{CALL}[FAILED_READ_FILE.X] Encountered error while reading file file:///in/b%20c.csv.  SQLSTATE: KD001\n"
FILE = "/in/b c.csv"


class AnalysisException(Exception):
    """As PySpark's class, which is known by its name."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Exception(f"{READ}\tat a.b.X\nCaused by: java.lang.IllegalArgumentException: Delimiter cannot be empty\n"),
            InputTrouble(FILE, "Delimiter cannot be empty"),
        ),
        (
            Exception(f"{CALL}[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012\n"),
            InputTrouble("", "Division by zero. Use `try_divide`."),
        ),
        (AnalysisException("Option 'x' not found in org.apache.y.Z"), InputTrouble("", "Option 'x' not found in Z")),
        (Exception(f"{READ}Caused by: java.net.UnknownHostException: db\n"), InputTrouble(FILE, "unknown host: db")),
        (Exception(f"{READ}Caused by: java.lang.NullPointerException\n"), InputTrouble(FILE, "null pointer")),
        # The path is no class.
        (Exception(f"{READ}Caused by: a.B$CError: no /org.x.y/com.d.e here\n"),
         InputTrouble(FILE, "no /org.x.y/com.d.e here")),
        (Exception(f"{CALL}[X] no memory SQLSTATE: 53200\n"), None),
        (Exception(f"{CALL}Job aborted.\nTraceback (most recent call last):\nValueError: x SQLSTATE: 22012\n"), None),
        (AnalysisException(ABORTED + "Python worker exited unexpectedly"), None),
        (Exception("x"), None),
    ],
)
def test_what_is_wrong_with_the_input_is_told_without_java(error: Exception, said: InputTrouble | None) -> None:
    assert input_trouble(error) == said
