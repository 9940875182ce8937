"""Names and durations as people write them."""

from __future__ import annotations

import pytest

from squall.engine.build.builder import TopologyBuilder
from squall.engine.errors import TopologyError, UsageError
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.nimbus.submission import check_topology_name
from tests.unit.rig import Does, Feeder, acks

BAD = {
    "blank": ("  ", "is blank: '  '"),
    "too long": ("x" * 129, "has 129 characters and 129 bytes"),
    "too many bytes": ("\N{GRINNING FACE}" * 64, "has 64 characters and 256 bytes"),
    "escape": ("a\x1b]0;title\x07", r"'a\x1b]0;title\x07' holds '\x1b'"),
    "line break": ("a\nb", r"'a\nb' holds '\n'"),
    "surrogate": ("a\ud800b", r"holds '\ud800'"),
    "zero width": ("a\u200bb", r"holds '\u200b'"),
    "another form": ("e\u0301", r"'e\u0301' looks like '\xe9'"),
    "markup": ("a[bold]b", "holds '[bold]', which would be printed as a style"),
    "closing markup": ("a[/]b", "holds '[/]'"),
}
GOOD = ["Zählung der Wörter", "单词", "a.b-c_d", "lines[1]", "x" * 128, "[", "é" * 100]


def mistakes_of(component: str = "spout", stream: str = "default", field: str = "value") -> tuple[str, ...]:
    builder = TopologyBuilder()
    spout = Feeder()
    spout.outputs = {stream: (field,)}
    builder.set_spout(component, spout)
    builder.set_bolt("sink", Does(acks)).shuffle_grouping(component, stream)
    try:
        builder.build()
    except TopologyError as refused:
        return refused.mistakes
    return ()


@pytest.mark.parametrize("what", ["component", "stream", "field"])
@pytest.mark.parametrize("bad", BAD, ids=BAD)
def test_a_name_that_could_be_taken_for_something_else_is_refused(what: str, bad: str) -> None:
    name, says = BAD[bad]
    mistakes = mistakes_of(**{what: name})
    assert any(says in mistake and "printable characters" in mistake for mistake in mistakes), mistakes
    assert all(mistake.isprintable() for mistake in mistakes)


@pytest.mark.parametrize("what", ["component", "stream", "field"])
@pytest.mark.parametrize("name", GOOD)
def test_any_other_is_not(what: str, name: str) -> None:
    assert mistakes_of(**{what: name}) == ()


@pytest.mark.parametrize("bad", BAD, ids=BAD)
def test_a_topology_is_called_by_the_same_rule(bad: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_topology_name(BAD[bad][0])
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "secs"),
    [("30", 30), ("1.5s", 1.5), ("500ms", 0.5), ("5m", 300), ("2h", 7200)],
)
def test_forms(text: str, secs: float) -> None:
    assert parse_duration_secs(text) == pytest.approx(secs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not understood"), ("-1s", "is not understood"), ("nan", "is not"),
        ("0s", "more than 0"), ("1e999s", "more than 0 and at most"), ("٣s", "is not"),
        ("3d", "has an unknown unit 'd'; units are ms, s, m, h"), ("3S", "unknown unit 'S'"), ("1_0s", "is not"),
        ("9" * 5000, "more than 0 and at most"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="duration ") as caught:
        parse_duration_secs(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 200
