"""Deaths and replacements are told once, when they happen."""

from __future__ import annotations

from squall.cli.death_news import DeathNews
from squall.scheduler.common.messages import RestartRecord


def death(incarnation: int, ready_after_secs: float | None = None, error: str = "") -> RestartRecord:
    return RestartRecord("node-1:6700", incarnation, "killed by SIGKILL", error, 5.0, ready_after_secs)


def test_each_death_and_each_replacement_once() -> None:
    news = DeathNews()
    assert news.lines([]) == []
    assert news.lines([death(1)]) == ["worker node-1:6700 died: killed by SIGKILL"]
    assert news.lines([death(1)]) == []
    back = "worker node-1:6700 is back, ready after 28.0 ms"
    assert news.lines([death(1, 0.028)]) == [back]
    assert news.lines([death(1, 0.028), death(2, 0.028)]) == ["worker node-1:6700 died: killed by SIGKILL", back]
    assert news.lines([death(1, 0.028), death(2, 0.028)]) == []


def test_what_was_known_is_no_news_but_its_replacement_is() -> None:
    news = DeathNews([death(1, 0.028), death(2)])
    assert news.lines([death(1, 0.028), death(2)]) == []
    assert news.lines([death(2, 0.5)]) == ["worker node-1:6700 is back, ready after 500.0 ms"]


def test_one_line_of_an_error_and_no_escape_sequences() -> None:
    (line,) = DeathNews().lines([death(1, error="\x1b[31mboom\nTraceback ...")])
    assert line == "worker node-1:6700 died: killed by SIGKILL: \\x1b[31mboom"
