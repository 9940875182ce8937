"""What is told of Spark's errors, by their texts."""

from __future__ import annotations

import pytest

from squall.pipeline.spark_errors import one_line

CALL = "An error occurred while calling o174.collectToPython.\n: org.apache.spark.SparkException: "
READ = f"{CALL}[FAILED_READ_FILE.X] Encountered error while reading file file:///in/b%20c.csv.  SQLSTATE: KD001\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{READ}\tat a.X\nCaused by: org.a.SparkIllegalArgumentException: No\n header\n\tat a.Y(Z)\n\t... 1 more\n",
         "/in/b c.csv: No header"),
        (f"{CALL}[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012\n\tat a.B\n",
         "Division by zero. Use `try_divide`."),
        ("Option 'x' not found in org.apache.y.Z", "Option 'x' not found in Z"),
        (f"{CALL}x\nCaused by: java.net.UnknownHostException: db\n", "UnknownHostException: db"),
        # The path is no class.
        ("no /org.x.y/com.d.e here", "no /org.x.y/com.d.e here"),
        (f'{CALL}X.\nTraceback (most recent call last):\n  File "/a/own.py", line 3, in f\nValueError: x\n\n\tat b',
         "ValueError: x (/a/own.py, line 3, in f)"),
        (f"{CALL}Python worker exited unexpectedly\nCaused by: java.io.EOFException\n",
         "a Python worker died without a message (killed, or out of memory?)"),
    ],
)
def test_the_cause_is_told_without_a_stack(text: str, said: str) -> None:
    assert one_line(text) == said
