"""Text that is not ours: it stays on its line, does nothing to a terminal, and can still be read."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.foreign.text import plain, plain_lines

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
