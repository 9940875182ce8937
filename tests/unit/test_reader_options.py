"""Options that Spark's readers would pass over, or tell of in Java's words, are refused by name."""

from __future__ import annotations

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.reader_options import check_options


@pytest.mark.parametrize(
    ("format_", "name", "value", "said"),
    [
        ("csv", "sep", "", "--option sep is ''; allowed: one character or more"),
        ("csv", "sep", "\\", r"--option sep is '\\'; allowed: one character or more, a backslash as \\, a tab as \t"),
        ("csv", "sep", r"a\q", "--option sep is "),
        ("csv", "quote", ",", "--option quote is ',', which is sep too; allowed: another"),
        ("csv", "Delimiter", '"', "--option Delimiter is '\"', which is quote too; allowed: another"),
        ("csv", "comment", ",", "--option comment is ',', which is sep too; "),
        ("csv", "Header", "maybe", "--option Header is 'maybe'; allowed: true, false"),
        ("csv", "quote", "ab", "--option quote is 'ab'; allowed: one character, or none"),
        ("csv", "maxColumns", "0", "--option maxColumns is '0'; allowed: a whole number from 1 up"),
        ("csv", "maxCharsPerColumn", "-2", "--option maxCharsPerColumn is '-2'; allowed: a whole number from 1 up, "),
        ("csv", "lineSep", "abc", "--option lineSep is 'abc'; allowed: one or two characters"),
        ("csv", "encoding", "klingon", "--option encoding is 'klingon'; allowed: UTF-8, ISO-8859-1, US-ASCII, "),
        ("csv", "unescapedQuoteHandling", "x", "--option unescapedQuoteHandling is 'x'; allowed: STOP_AT_"),
        ("csv", "ignoreCorruptFiles", "true", "--option ignoreCorruptFiles is set by prepare; allowed: the others of "),
        ("csv", "quoteAll", "true", "--option quoteAll is none of Spark's csv reader; did you mean quote? Allowed: "),
        ("json", "samplingRatio", "1.5", "--option samplingRatio is '1.5'; allowed: a number above 0, up to 1"),
        ("json", "lineSep", "", "--option lineSep is ''; allowed: one character or more"),
        ("json", "sep", ";", "--option sep is none of Spark's json reader; "),
        ("parquet", "nosuch", "1", "--option nosuch is none of Spark's parquet reader; allowed: mergeSchema, "),
        ("parquet", "int96RebaseMode", "x", "--option int96RebaseMode is 'x'; allowed: EXCEPTION, CORRECTED, LEGACY"),
        ("orc", "mergeschma", "1", "--option mergeschma is none of Spark's orc reader; did you mean mergeSchema? "),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(format_: str, name: str, value: str, said: str) -> None:
    with pytest.raises(UsageError) as found:
        check_options(format_, {name: value})
    assert str(found.value).startswith(said)


def test_an_option_in_two_spellings_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--option SEP is given twice, as sep too$"):
        check_options("csv", {"sep": ",", "SEP": ";"})


def test_right_options_are_taken_in_any_case() -> None:
    check_options("csv", {"sep": '"', "quote": "'", "comment": ","})
    check_options("csv", {"sep": r"\\||", "quote": ","})
    check_options("csv", {"SEP": "\\t", "quote": "", "comment": "", "header": "FALSE", "maxCharsPerColumn": "-1"})
    check_options("json", {"encoding": "utf-16", "multiline": "True"})
