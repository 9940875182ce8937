"""How prepare turns sources into rows: what a user asks for, checked, and noted in the feed; and how rows are cleaned,
by a SELECT over the view `input` (`--sql FILE`), or a user's function (`--clean FILE:FUNCTION`).

Both make a DataFrame from one. Rows of the result whose column `_reason` is not null are quarantined with that reason,
and with `_path`, `_line_no` and `_raw` if the result has them.

Guarantees that an increment is made as those before it, or is refused with a line that says what differs: the rows of
one feed have one meaning; that a mistake is one line that names the file; that a function can be run in Spark's Python
workers, with the modules that lie beside its file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.files import spec_of_script
from squall.engine.foreign.text import repr_of, text_of_error, type_name
from squall.pipeline.feed.manifest import Manifest
from squall.pipeline.read.input_frame import REFUSED, TEXT, check_format, columns_of, quoted, refusal
from squall.pipeline.spark_errors import mistake_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What SQL calls the rows of the source.
VIEW = "input"
#: Columns of the result that are not rows' own, each with a column of lines of text that stands for it.
QUARANTINE_COLUMNS = {"_reason": "", "_path": "path", "_line_no": "line_no", "_raw": "text"}


class Cleaner(NamedTuple):
    """What a user cleans rows with."""

    file: Path
    function: str
    """Empty for SQL."""
    sha256: str

    def __str__(self) -> str:
        return f"{self.function} of {self.sha256}" if self.function else self.sha256


def cleaner_of(sql: Path | None, function: str | None) -> Cleaner | None:
    """What is asked for. UsageError if it cannot be read."""
    if sql is None and function is None:
        return None
    if sql is not None and function is not None:
        raise UsageError("--sql and --clean exclude each other: a function can call spark.sql")
    file, _, name = (str(sql), "", "") if function is None else function.rpartition(":")
    if function is not None and not (file and name.isidentifier()):
        raise UsageError(f"--clean is {function!r}; it takes FILE:FUNCTION, such as clean.py:clean")
    try:
        return Cleaner(Path(file), name, hashlib.sha256(Path(file).read_bytes()).hexdigest())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error


@dataclass
class Recipe:
    """What is the same for all increments of a feed, checked as far as that goes without Spark."""

    source: Path
    format_: str = TEXT
    pattern: str | None = None
    """Of the names of files."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's reader, as is `schema`."""
    schema: str | None = None
    sql: Path | None = None
    """A file with a SELECT."""
    clean: str | None = None
    """FILE:FUNCTION."""
    cleaner: Cleaner | None = field(init=False)

    def __post_init__(self) -> None:
        check_format(self.format_, self.options, self.schema)
        self.cleaner = cleaner_of(self.sql, self.clean)

    @property
    def is_text(self) -> bool:
        return self.format_ == TEXT

    @property
    def is_plain(self) -> bool:
        """True if each line becomes a row unchanged."""
        return self.is_text and self.cleaner is None

    def to_dict(self) -> dict[str, Any]:
        """What a feed notes."""
        return {
            "format": self.format_,
            "glob": self.pattern,
            "options": dict(self.options),
            "schema": self.schema,
            "clean": self.cleaner and str(self.cleaner),
        }

    def check_as_before(self, target: Path, former: Manifest, partitions: int | None) -> None:
        made = {"input": former.input, "partitions": len(former.partitions), **former.recipe}
        wanted = {"input": str(self.source.absolute()), "partitions": partitions, **self.to_dict()}
        for name, value in wanted.items():
            if value != made.get(name) and (name != "partitions" or partitions):
                raise UsageError(
                    f"feed {target} was made with {name} {_shown(made.get(name))}, and now it is {_shown(value)}; "
                    "--overwrite makes the feed anew"
                )


def _shown(value: Any) -> str:
    return "not given" if value in (None, [], {}) else value if isinstance(value, str) else repr_of(value)


def clean(frame: DataFrame, cleaner: Cleaner) -> DataFrame:
    """The rows of a frame, cleaned, with REFUSED. The frame has REFUSED, or is lines of text; what was refused
    before is left out."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    given, is_text = frame, REFUSED not in frame.columns
    if not is_text:
        path = f.col("_metadata.file_path").alias("_path")
        given = frame.where(f.col(REFUSED).isNull()).select(*map(quoted, columns_of(frame)), path)
    try:
        cleaned = _called(cleaner, given) if cleaner.function else _selected(cleaner, given)
    except PySparkException as error:
        raise UsageError(f"{_place(cleaner.file, error)}: {mistake_of(error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{_place(cleaner.file, error)}: {text_of_error(error)}") from error
    if not isinstance(cleaned, DataFrame):
        raise UsageError(f"{cleaner.file}:{cleaner.function} returned {type_name(cleaned)}, and no DataFrame")
    kept = [name for name in cleaned.columns if name not in QUARANTINE_COLUMNS]

    def found(name: str, kind: str, default: Column) -> Column:
        names = (name, QUARANTINE_COLUMNS[name]) if is_text else (name,)
        there = [one for one in names if one in cleaned.columns]
        return f.col(there[0]).cast(kind) if there else default

    reason = found("_reason", "string", f.lit(None).cast("string"))
    raw = f.encode(found("_raw", "string", f.to_json(f.struct(*map(quoted, kept)))), "utf-8")
    refused = refusal(reason, found("_path", "string", f.lit("")), found("_line_no", "int", f.lit(0)), raw)
    return cleaned.select(*map(quoted, kept), f.when(reason.isNotNull(), refused).alias(REFUSED))


def _selected(cleaner: Cleaner, frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView(VIEW)
    try:
        return frame.sparkSession.sql(cleaner.file.read_text(encoding="utf-8").rstrip().removesuffix(";"))
    finally:
        frame.sparkSession.catalog.dropTempView(VIEW)


def _called(cleaner: Cleaner, frame: DataFrame) -> Any:
    from pyspark import cloudpickle

    folder, name = str(cleaner.file.absolute().parent), cleaner.file.stem
    spec = spec_of_script(name, cleaner.file.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"--clean {cleaner.file} is no Python file: its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    # The workers cannot import what lies beside the file: it is sent to them. Pickling looks modules up by name.
    sys.modules[name] = module
    for found in [module, *(sys.modules[new] for new in set(sys.modules) - before)]:
        if str(getattr(found, "__file__", None) or "").startswith(folder):
            cloudpickle.register_pickle_by_value(found)
    function: Callable[[DataFrame], Any] = getattr(module, cleaner.function)
    return function(frame)


def _place(file: Path, error: BaseException) -> str:
    """The innermost line of the user's file."""
    name = str(file.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    if isinstance(error, SyntaxError) and error.filename == name:
        lines = [error.lineno]
    return f"{file}:{lines[-1]}" if lines else str(file)
