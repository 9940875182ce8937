"""Text from users and its plain form for terminals."""

from __future__ import annotations

import tracemalloc
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.foreign.text import (
    ERROR_CHARACTERS,
    TRACEBACK_CHARACTERS,
    plain,
    plain_lines,
    repr_of,
    text_of_error,
    traceback_of,
    type_name,
)

RAISES = [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("base")]


def hostile(raises: BaseException, base: type = object) -> type:
    """A class whose every special method raises."""

    def refuse(*args: Any) -> Any:
        raise raises

    names = ("__repr__", "__str__", "__hash__", "__eq__", "__reduce__", "__reduce_ex__", "__len__", "__iter__",
             "__getitem__", "__format__", "__bool__")
    return type("Hostile", (base,), {**dict.fromkeys(names, refuse), "__class__": property(refuse)})


@pytest.mark.parametrize("raises", RAISES, ids=lambda error: type(error).__name__)
def test_what_cannot_show_itself_is_told_by_its_type(raises: BaseException) -> None:
    value, error = hostile(raises)(), hostile(raises, Exception)()
    name = f"<{__name__}.Hostile object>"
    assert repr_of(value) == name
    assert repr_of((1, [value], {"a": value}), 200) == f"(1, [{name}], {{'a': {name}}})"
    assert type_name(value) == f"{__name__}.Hostile"
    assert text_of_error(error) == f"Hostile: (its text cannot be read: {type(raises).__name__})"
    assert "cannot be read" in traceback_of(error)


@pytest.mark.parametrize("big", [
    b"x" * (20 << 20), "x" * (20 << 20), [0] * (1 << 20), {"k": b"x" * (20 << 20)}, [["x" * 5000] * 1000] * 1000,
    1 << (1 << 22), set(range(1 << 14)),
], ids=lambda value: type(value).__name__)
def test_a_big_value_is_not_made_into_text_first(big: Any) -> None:
    tracemalloc.start()
    try:
        assert len(repr_of(big, 200)) <= 200
        assert len(text_of_error(ValueError(big))) <= ERROR_CHARACTERS + 20
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_tracebacks_of_causes_groups_and_circles() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    shown = traceback_of(first)
    assert shown.index("KeyError: 'second'") < shown.index("direct cause") < shown.index("ValueError: first")
    group = ExceptionGroup("some", [ValueError("a"), ExceptionGroup("inner", [TypeError("b")])])
    shown = traceback_of(group)
    assert [text in shown for text in ("ExceptionGroup: some", "ValueError: a", "TypeError: b")] == [True] * 3
    many = ExceptionGroup("many", [ValueError(str(n)) for n in range(10_000)])
    assert len(traceback_of(many)) < TRACEBACK_CHARACTERS + 100


def test_lone_surrogates_become_plain() -> None:
    assert text_of_error(ValueError("said \ud800")) == "ValueError: said \\ud800"


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ODD = PLAIN | st.integers(0, len(RAISES) - 1).map(lambda n: hostile(RAISES[n])())
NESTED = st.recursive(ODD, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(PLAIN, inner))


HASHABLE = PLAIN | st.datetimes() | st.timedeltas()
WHOLE = st.recursive(
    st.tuples(HASHABLE) | HASHABLE | st.frozensets(HASHABLE, max_size=1) | st.builds(bytearray, st.binary()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(HASHABLE, inner, max_size=1),
    max_leaves=5,
)


@given(WHOLE)
def test_what_is_plain_is_shown_as_python_shows_it(value: Any) -> None:
    assert repr_of(value, 10**5).replace("frozenset({})", "frozenset()") == repr(value)


@given(NESTED, st.integers(5, 300))
def test_any_value_has_a_short_text(value: Any, limit: int) -> None:
    shown = repr_of(value, limit)
    assert len(shown) <= max(limit, 5)
    shown.encode()


TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)
"""Surrogates too."""
DANGEROUS = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}


def dangerous(text: str, but: str = "") -> list[str]:
    """The characters in it that do something."""
    return [mark for mark in text if unicodedata.category(mark) in DANGEROUS and mark not in but]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Grüße, 東京 🦊 x\u00a0y\u3000z", "Grüße, 東京 🦊 x\u00a0y\u3000z"),
        ("\x1b]0;owned\x07[bold]x\nforged", "\\x1b]0;owned\\x07[bold]x\\nforged"),
        ("a\r\nb\tc\x00\x7f\x85\x9b31m", "a\\r\\nb\\tc\\x00\\x7f\\x85\\x9b31m"),
        ("\u2028\u2029\u202e\u2066\u200b\u200d\ufeff\u00ad", "\\u2028\\u2029\\u202e\\u2066\\u200b\\u200d\\ufeff\\xad"),
        ("\ud800\udfff \U000e0041", "\\ud800\\udfff \\U000e0041"),
        ("\u3164\u034f", "\\u3164\\u034f"),
        ("C:\\new", "C:\\new"),
    ],
)
def test_what_does_something_is_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_anything_may_be_shown() -> None:
    assert plain(ValueError("a\nb")) == "a\\nb"
    assert plain(7) == "7"


def test_length_has_a_limit_and_says_so() -> None:
    assert plain("x" * 10, 10) == "x" * 10
    assert plain("x" * 11, 10) == "x" * 10 + "... (1 more characters)"
    assert len(plain("\x1b" * 10**6)) < 10_050


def test_lines_and_tabs_of_a_traceback_stay() -> None:
    assert plain_lines("Traceback:\n\tFile\x1b[2J\r\n") == "Traceback:\n\tFile\\x1b[2J\\r\n"


@given(TEXT)
def test_nothing_dangerous_comes_out(text: str) -> None:
    assert dangerous(plain(text)) == []
    assert dangerous(plain(text, keep="\t"), but="\t") == []
    assert dangerous(plain_lines(text), but="\n\t") == []
    assert plain_lines(text).count("\n") == text.count("\n")
    # Nothing is lost without a word, and what is plain already is left alone.
    assert plain(plain(text)) == plain(text)
    plain(text).encode()
