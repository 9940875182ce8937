"""Examples whose topologies take arguments say in one line what is wrong with them."""

from __future__ import annotations

import pytest

from tests.process.cli import squall


@pytest.mark.parametrize(
    ("example", "arguments", "said"),
    [
        ("sales_day.py", [], "the following arguments are required: --out"),
        ("sales_day.py", ["--out", "out", "--orders", "x"], "argument --orders: invalid int value: 'x'"),
        ("website_monitoring/monitor.py", [], "the following arguments are required: base"),
        ("website_monitoring/monitor.py", ["web", "--depth", "1"], "unrecognized arguments: --depth 1"),
    ],
)
def test_wrong_arguments_are_named_in_one_line(example: str, arguments: list[str], said: str) -> None:
    done = squall("run", f"examples/{example}", "--", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"squall: {said}\n")
