"""The options of Spark's readers that `squall prepare` takes, and what each allows.

Spark passes over options that it does not know, and tells of wrong values in words of Java's. So both are refused here,
before it starts. Those with which a file, a record or a column would be left out without a word are not taken.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of


class _Kind(NamedTuple):
    """Values that options take."""

    is_one: Callable[[str], bool]
    allowed: str


def _one_of(*values: str) -> _Kind:
    return _Kind(lambda text: text.casefold() in {value.casefold() for value in values}, ", ".join(values))


def _is_ratio(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


_TEXT = _Kind(lambda text: True, "a text")
_SOME_TEXT = _Kind(bool, "one character or more")
_SEPARATOR = _Kind(
    lambda text: bool(re.fullmatch(r"""\\u0000|(?:[^\\]|\\[\\trbf"'])+""", text, re.DOTALL)),
    "one character or more, a backslash as \\\\, a tab as \\t",
)
_CHARACTER = _Kind(lambda text: len(text) <= 1, "one character, or none")
_FLAG = _one_of("true", "false")
_COUNT = _Kind(lambda text: bool(re.fullmatch(r"[1-9]\d{0,8}", text)), "a whole number from 1 up")
_COUNT_OR_NONE = _Kind(lambda text: text == "-1" or _COUNT.is_one(text), "a whole number from 1 up, or -1 for any")
_RATIO = _Kind(_is_ratio, "a number above 0, up to 1")
_CHARSET = _one_of("UTF-8", "ISO-8859-1", "US-ASCII", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")
_REBASE = _one_of("EXCEPTION", "CORRECTED", "LEGACY")
_COMMON: Mapping[str, _Kind] = {
    "encoding": _CHARSET, "charset": _CHARSET, "multiLine": _FLAG, "samplingRatio": _RATIO, "locale": _SOME_TEXT,
    "timeZone": _SOME_TEXT, "dateFormat": _SOME_TEXT, "timestampFormat": _SOME_TEXT, "timestampNTZFormat": _SOME_TEXT,
    "timeFormat": _SOME_TEXT, "enableDateTimeParsingFallback": _FLAG,
}
OPTIONS: Mapping[str, Mapping[str, _Kind]] = {
    "csv": {
        "sep": _SEPARATOR, "delimiter": _SEPARATOR, "header": _FLAG, "quote": _CHARACTER, "escape": _CHARACTER,
        "comment": _CHARACTER, "charToEscapeQuoteEscaping": _CHARACTER, "inferSchema": _FLAG, "preferDate": _FLAG,
        "enforceSchema": _FLAG, "ignoreLeadingWhiteSpace": _FLAG, "ignoreTrailingWhiteSpace": _FLAG,
        "nullValue": _TEXT, "emptyValue": _TEXT, "nanValue": _TEXT, "positiveInf": _TEXT, "negativeInf": _TEXT,
        "maxColumns": _COUNT, "maxCharsPerColumn": _COUNT_OR_NONE, "inputBufferSize": _COUNT,
        "lineSep": _Kind(lambda text: 1 <= len(text) <= 2, "one or two characters"),
        "unescapedQuoteHandling": _one_of(
            "STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR"
        ),
        **_COMMON,
    },
    "json": {
        "lineSep": _SOME_TEXT, "primitivesAsString": _FLAG, "prefersDecimal": _FLAG, "inferTimestamp": _FLAG,
        "dropFieldIfAllNull": _FLAG, "allowComments": _FLAG, "allowUnquotedFieldNames": _FLAG,
        "allowSingleQuotes": _FLAG, "allowNumericLeadingZeros": _FLAG, "allowNonNumericNumbers": _FLAG,
        "allowBackslashEscapingAnyCharacter": _FLAG, "allowUnquotedControlChars": _FLAG, **_COMMON,
    },
    "parquet": {"mergeSchema": _FLAG, "datetimeRebaseMode": _REBASE, "int96RebaseMode": _REBASE},
    "orc": {"mergeSchema": _FLAG},
}
"""By format, as Spark 4 has them in its documentation."""
#: Set by prepare, which decides what is read, and leaves nothing out without a word.
OURS = (
    "mode", "columnNameOfCorruptRecord", "columnPruning", "path", "paths", "basePath", "recursiveFileLookup",
    "pathGlobFilter", "modifiedBefore", "modifiedAfter", "ignoreCorruptFiles", "ignoreMissingFiles",
)


_CHARACTERS = ("sep", "delimiter", "quote", "comment")


def check_options(format_: str, options: Mapping[str, str]) -> None:
    """UsageError for a name or a value that Spark's reader does not take. Names are the same in any case."""
    known = {name.casefold(): (name, kind) for name, kind in OPTIONS[format_].items()}
    ours = {name.casefold() for name in OURS}
    seen: dict[str, str] = {}
    for name, value in options.items():
        folded = name.casefold()
        if folded in ours:
            raise UsageError(f"--option {name} is set by prepare; allowed: the others of Spark's {format_} reader")
        if folded not in known:
            names = [entry[0] for entry in known.values()]
            found = difflib.get_close_matches(folded, known, n=1)
            hint = f"; did you mean {known[found[0]][0]}? Allowed" if found else "; allowed"
            raise UsageError(f"--option {name} is none of Spark's {format_} reader{hint}: {', '.join(names)}")
        if folded in seen:
            raise UsageError(f"--option {name} is given twice, as {seen[folded]} too")
        seen[folded] = name
        if not known[folded][1].is_one(value):
            raise UsageError(f"--option {name} is {repr_of(value)}; allowed: {known[folded][1].allowed}")
    if format_ == "csv":
        _check_characters({seen[folded]: options[seen[folded]] for folded in seen if folded in _CHARACTERS})


def _check_characters(given: Mapping[str, str]) -> None:
    """Refuse one character for two purposes: Spark would take it for one of them, and says nothing."""
    names = {name.casefold() for name in given}
    used = {} if names & {"sep", "delimiter"} else {",": "sep"}
    used |= {} if "quote" in names else {'"': "quote"}
    for name, value in given.items():
        if value in used:
            raise UsageError(f"--option {name} is {repr_of(value)}, which is {used[value]} too; allowed: another")
        if value:
            used[value] = name
