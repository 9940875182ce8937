"""The gate on how long tests take, and what becomes of a test that lacks a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import needs
from tests.tiers import DURATIONS, TIERS, Durations


def durations(secs_by_file: dict[str, float]) -> Durations:
    made = Durations()
    for path, secs in secs_by_file.items():
        keywords = ("nightly",) if "night" in path else ()
        report: Any = SimpleNamespace(nodeid=f"{path}::test", duration=secs, keywords=keywords)
        made.pytest_runtest_logreport(report)
    return made


def exit_status(made: Durations, before: int = 0) -> int:
    session: Any = SimpleNamespace(exitstatus=before)
    made.pytest_sessionfinish(session)
    return int(session.exitstatus)


def test_every_test_is_in_a_tier() -> None:
    tests = needs.ROOT / "tests"
    assert {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")} == set(TIERS)


def test_a_tier_above_its_budget_fails_the_run_where_all_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = DURATIONS["budget_secs"]
    assert set(budget) == set(TIERS)
    within = durations({"tests/unit/a.py": budget["unit"] - 2, "tests/unit/b.py": 1, "tests/unit/night.py": 9})
    above = durations({"tests/unit/a.py": budget["unit"] - 1, "tests/unit/b.py": 2, "tests/docs/a.py": 1})
    assert (within.over_budget(), above.over_budget()) == ([], ["unit"])
    monkeypatch.setenv("CI", "true")
    assert (exit_status(within), exit_status(above), exit_status(above, before=2)) == (0, 1, 2)
    monkeypatch.delenv("CI")
    monkeypatch.delenv("SQUALL_REQUIRE", raising=False)
    assert exit_status(above) == 0


@pytest.mark.parametrize(("name", "value", "ends"), [
    ("CI", "", pytest.skip.Exception), ("CI", "true", pytest.fail.Exception),
    ("SQUALL_REQUIRE", "all", pytest.fail.Exception),
])
def test_a_missing_server_skips_its_tests_or_fails_them(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, ends: Any
) -> None:
    for variable in ("CI", "SQUALL_REQUIRE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, value)
    monkeypatch.setitem(needs.NEEDS, "squid", needs.Need("Squid", lambda: False, "apt install squid"))
    monkeypatch.setitem(needs.NEEDS, "python", needs.Need("Python", lambda: True, ""))
    needs.require("python")
    with pytest.raises(ends, match=r"^needs Squid: apt install squid$"):
        needs.require("squid")
