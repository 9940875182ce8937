"""The tiers of tests, how long they may take, and which of their files begin first.

A tier is a folder of `tests/`; what is marked `nightly` is left out of all of them by `make test` and `make test-all`.
`tests/durations.toml` holds the budget of each tier: twice the seconds that its tests take on two idle cores, as no
machine of others is idle. A run prints the sums. Where all is required (`CI=true`), one above its budget fails the run:
make a test faster, take one away, or mark it nightly; raise the budget in a commit that says why. The file also holds
the seconds of the long files, since a run whose longest file begins last ends on one core. A run leaves the present
figures in `build/durations.toml`.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.needs import ROOT, all_is_required

TIERS = ("unit", "sim", "process", "servers", "docs", "spark", "chaos")
DURATIONS = tomllib.loads((ROOT / "tests/durations.toml").read_text())
LONG_SECS = 4.0
"""Files that take longer are worth a place in the order."""


def tier_of(nodeid: str) -> str:
    """The folder below `tests/` of a test such as "tests/unit/test_acker.py::test_a_tree"."""
    return nodeid.split("/")[1]


def file_order(path: Path) -> float:
    """What to sort items by so that the longest file begins first; files of unknown duration follow in their order."""
    return -float(DURATIONS["file_secs"].get(path.relative_to(ROOT / "tests").as_posix(), 0.0))


class Durations:
    """A plugin of the process that hears of all tests: sums their seconds, and compares them with the budget."""

    def __init__(self) -> None:
        self._secs_by_file: Counter[str] = Counter()

    def by_tier(self) -> Counter[str]:
        """The seconds of the tests that ran, by tier."""
        secs_by_tier = Counter[str]()
        for path, secs in self._secs_by_file.items():
            secs_by_tier[tier_of(path)] += secs  # type: ignore[assignment]
        return secs_by_tier

    def over_budget(self) -> list[str]:
        budget = DURATIONS["budget_secs"]
        return [tier for tier, secs in self.by_tier().items() if secs > budget[tier]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "nightly" not in report.keywords:
            self._secs_by_file[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.over_budget() and all_is_required() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        budget = DURATIONS["budget_secs"]
        over = self.over_budget()
        terminalreporter.section("seconds of tests by tier")
        for tier, secs in self.by_tier().items():
            verdict = " OVER BUDGET: see tests/tiers.py" if tier in over else ""
            terminalreporter.line(f"{tier:8} {secs:6.0f} of {budget[tier]:5}{verdict}", red=tier in over)
        self._write()

    def _write(self) -> None:
        lines = ["[budget_secs]", *(f"{tier} = {secs:.0f}" for tier, secs in self.by_tier().items()), "", "[file_secs]"]
        lines += [
            f'"{path.removeprefix("tests/")}" = {secs:.0f}'
            for path, secs in self._secs_by_file.most_common() if secs >= LONG_SECS
        ]
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build/durations.toml").write_text("\n".join(lines) + "\n")
