"""Applies cleaning rules to a DataFrame.

Each row has a *fate* in a column of its own: null while it is good, else why it is refused, or the rule that dropped
it. Rules look at good rows only, so what one rule has refused cannot make a later one fail.

Guarantees that columns and SQL that do not fit are named with the line of their rule, all together, before a row is
read. Relies on Spark evaluating a branch of `CASE` only where it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.rule_columns import pass_columns
from squall.pipeline.rules import Rule, RuleMistakes, Rules, plain_groups
from squall.pipeline.spark_errors import mistake_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Columns of prepare's own begin so. The fate begins with one of the two characters below.
INTERNAL = "_squall_"
INTERNALS = PATH, LINE_NO, FATE, RAW = tuple(INTERNAL + name for name in ("path", "line_no", "fate", "raw"))
REFUSED, DROPPED, SOURCE_FILE = "!", "-", "="
_RECORD = INTERNAL + "record"


def clean_by_rules(frame: DataFrame, rules: Rules) -> DataFrame:
    """The frame after all rules, with fates. RuleMistakes for what does not fit its columns."""
    from pyspark.sql import functions as f

    cleaner = _Cleaner(rules, frame)
    raw = f.coalesce(f.col(RAW), f.when(f.col(FATE).startswith(REFUSED), _record_of(frame)))
    cleaner.frame = cleaner.frame.withColumn(_RECORD, f.struct(*(quoted(name) for name in cleaner.columns)))
    for rule in rules.steps:
        with cleaner.noted(rule):
            pass_columns(rule, cleaner.columns)
            _STEPS[rule.kind](cleaner, rule)
    if cleaner.mistakes:
        raise RuleMistakes(cleaner.mistakes)
    return cleaner.frame.withColumn(RAW, raw).select(*(quoted(name) for name in cleaner.columns), *INTERNALS)


def columns_of(frame: DataFrame) -> list[str]:
    """The columns that are not prepare's own."""
    return [name for name in frame.columns if not name.startswith(INTERNAL)]


def _record_of(frame: DataFrame) -> Column:
    """What the quarantine holds of a row: its text, or else its columns as JSON."""
    from pyspark.sql import functions as f

    text = f.col(f"{_RECORD}.text") if "text" in frame.columns and "line_no" in frame.columns else f.to_json(_RECORD)
    return f.encode(text, "utf-8")


def quoted(name: str) -> str:
    """A name of a column as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


class _Cleaner:
    """A frame on its way through the rules, its columns, and the mistakes so far."""

    def __init__(self, rules: Rules, frame: DataFrame) -> None:
        self.rules = rules
        self.frame = frame
        self.columns = columns_of(frame)
        self.mistakes: list[str] = []

    @contextmanager
    def noted(self, rule: Rule) -> Iterator[None]:
        """Note what is wrong with a rule, and go on with the next."""
        from pyspark.errors import PySparkException

        try:
            yield
        except UsageError as error:
            self.mistakes.append(f"{self.rules.place(rule)}: {rule.kind}: {error}")
        except PySparkException as error:
            self.mistakes.append(f"{self.rules.place(rule)}: {rule.kind}: {mistake_of(error)}")

    def put(self, values: dict[str, Column]) -> None:
        """Set columns of good rows."""
        from pyspark.sql import functions as f

        good = f.col(FATE).isNull()
        # Analysed by Spark, so a mistake shows here, at the rule that has it.
        self.frame = self.frame.withColumns({name: f.when(good, value) for name, value in values.items()})

    def end(self, rule: Rule, condition: Column, fate: str) -> None:
        """Give rows for which a condition holds a fate."""
        from pyspark.sql import functions as f

        old = f.col(FATE)
        self.frame = self.frame.withColumn(FATE, f.when(old.isNull(), f.when(condition, f.lit(fate))).otherwise(old))

    def refuse(self, rule: Rule, condition: Column, reason: str) -> None:
        self.end(rule, condition, f"{REFUSED}{rule.reason or reason} ({self.rules.label(rule)})")


def _extract(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    regex, names = plain_groups(rule.value)
    text = f.col(quoted(rule.source)).cast("string")
    cleaner.refuse(rule, ~f.coalesce(text.rlike(regex), f.lit(False)), f"{rule.source} does not match")
    cleaner.put({name: f.regexp_extract(text, regex, number) for name, number in names.items()})


def _rename(cleaner: _Cleaner, rule: Rule) -> None:
    for old, new in rule.value.items():
        cleaner.frame = cleaner.frame.withColumnRenamed(old, new)


def _trim(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    # Not only spaces: what Java's regular expressions know as white space.
    cleaner.put({name: f.regexp_replace(quoted(name), r"^\s+|\s+$", "") for name in rule.value})


def _cast(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    for name, kind in rule.value.items():
        value = f.expr(f"try_cast({quoted(name)} AS {kind})")
        cleaner.refuse(rule, f.col(quoted(name)).isNotNull() & value.isNull(), f"{name} is no {kind}")
        cleaner.put({name: value})


def _derive(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    for name, sql in rule.value.items():
        cleaner.put({name: f.expr(sql)})


def _require(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    for name in rule.value:
        column = f.col(quoted(name))
        cleaner.refuse(rule, column.isNull() | (column.cast("string") == ""), f"{name} is missing")


def _match(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    for name, regex in rule.value.items():
        matches = f.col(quoted(name)).cast("string").rlike(plain_groups(regex)[0])
        cleaner.refuse(rule, ~matches, f"{name} does not match")


def _range(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    for name, (least, most) in rule.value.items():
        column = f.col(quoted(name))
        kind = cleaner.frame.schema[name].dataType.simpleString()
        if kind == "string":
            raise UsageError(f"column {name!r} is text, which has no such range; cast it first")
        for bound, is_beyond, what in ((least, column.__lt__, "below"), (most, column.__gt__, "above")):
            if bound is not None:
                # A constant: Spark computes it without a job.
                value = cleaner.frame.sparkSession.sql(f"SELECT try_cast(:bound AS {kind})", {"bound": bound}).first()
                if value is None or value[0] is None:
                    raise UsageError(f"column {name!r} is {kind}, and {bound!r} is none")
                cleaner.refuse(rule, is_beyond(f.lit(bound).cast(kind)), f"{name} is {what} {bound}")


def _one_of(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    for name, values in rule.value.items():
        is_one = f.col(quoted(name)).cast("string").isin(*values)
        cleaner.refuse(rule, ~is_one, f"{name} is none of {', '.join(values)}")


def _refuse(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    cleaner.refuse(rule, f.expr(rule.value), "refused")


def _drop(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    cleaner.end(rule, f.expr(rule.value), f"{DROPPED}{cleaner.rules.label(rule)}")


def _keep(cleaner: _Cleaner, rule: Rule) -> None:
    from pyspark.sql import functions as f

    cleaner.end(rule, ~f.coalesce(f.expr(rule.value), f.lit(False)), f"{DROPPED}{cleaner.rules.label(rule)}")


def _columns(cleaner: _Cleaner, rule: Rule) -> None:
    cleaner.frame = cleaner.frame.drop(*(name for name in columns_of(cleaner.frame) if name not in rule.value))


_STEPS: dict[str, Callable[[_Cleaner, Rule], None]] = {
    "extract": _extract, "rename": _rename, "trim": _trim, "cast": _cast, "derive": _derive, "require": _require,
    "match": _match, "range": _range, "one_of": _one_of, "refuse": _refuse, "drop": _drop, "keep": _keep,
    "columns": _columns,
}
