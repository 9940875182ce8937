"""What `--watch` shows while a topology goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall.cli.watch import Look, watch


def gone_after(looks: int) -> Callable[[], Look | str]:
    left = iter([*[Look([], "a line")] * looks, "it is gone"])
    return lambda: next(left)


def test_why_there_is_nothing_more_to_see_is_told_once_although_news_had_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As if it went between the look for news and the look."""
    watch(gone_after(2), list, 0.0)
    assert capsys.readouterr().out.splitlines() == ["a line", "a line", "it is gone"]
