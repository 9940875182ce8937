"""Calls a user's cleaning function on a DataFrame: `--clean FILE:FUNCTION`.

The function takes a DataFrame and returns one. Rows of the result whose column `_reason` is not null go to the
quarantine with that reason; `_path`, if it is still there, says which file they are from.

Guarantees that a mistake in the file is one line with the user's error, file and line; that the function can be run in
Spark's Python workers, with the modules that lie beside its file; that the file may use PySpark as it is imported
(`@udf("string")`, `BAD = col("status") > 599`): then it is imported once Spark runs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.script import spec_of_script
from squall.engine.foreign.text import text_of_error, type_name
from squall.pipeline.cleaning import FATE, LINE_NO, PATH, RAW, REFUSED, columns_of, quoted
from squall.pipeline.rules import near
from squall.pipeline.spark_errors import mistake_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Columns of the result that are not rows' own.
REASON_COLUMN, PATH_COLUMN = "_reason", "_path"


@dataclass(frozen=True)
class CleanFunction:
    """A function that was loaded from a user's file."""

    call: Callable[[DataFrame], Any]
    file: Path
    name: str
    sha256: str

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The rows of a source frame after the function, with their fates."""
        from pyspark.errors import (
            AnalysisException,
            ParseException,
            PySparkAttributeError,
            PySparkTypeError,
            PySparkValueError,
        )
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as f

        own = columns_of(frame)
        path_too = [] if "line_no" in own else [f.col(PATH).alias(PATH_COLUMN)]
        given = frame.select(*map(quoted, own), *path_too)
        try:
            cleaned = self.call(given)
            if not isinstance(cleaned, DataFrame):
                raise ClusterError(f"{self.file}:{self.name} returned {type_name(cleaned)}; allowed: a DataFrame")
        except (ClusterError, UsageError):
            raise
        except (AnalysisException, ParseException, PySparkAttributeError, PySparkTypeError, PySparkValueError) as error:
            # What Spark finds wrong before it runs: names, types and SQL that do not fit.
            raise UsageError(f"{_place(self.file, error)}: {mistake_of(error)}") from error
        except (Exception, SystemExit) as error:
            raise ClusterError(_told(self.file, error)) from error
        has = cleaned.columns
        reason = f.col(REASON_COLUMN) if REASON_COLUMN in has else f.lit(None).cast("string")
        path = f.col(PATH_COLUMN if PATH_COLUMN in has else "path") if {PATH_COLUMN, "path"} & set(has) else f.lit("")
        line_no = f.col("line_no").cast("int") if "line_no" in has else f.lit(0)
        kept = [name for name in has if name not in (REASON_COLUMN, PATH_COLUMN)]
        raw = f.col("text") if "text" in has else f.to_json(f.struct(*map(quoted, kept)))
        fate = f.when(reason.isNotNull(), f.concat(f.lit(REFUSED), reason.cast("string")))
        internal = {
            PATH: path.cast("string"), LINE_NO: line_no, FATE: fate,
            RAW: f.when(reason.isNotNull(), f.encode(raw.cast("string"), "utf-8")),
        }
        return cleaned.select(*map(quoted, kept), *(value.alias(name) for name, value in internal.items()))


def load_clean_function(text: str) -> CleanFunction:
    """Import a function by FILE:FUNCTION. UsageError if there is none, or its file fails."""
    file_text, _, name = text.rpartition(":")
    if not file_text or not name.isidentifier():
        raise UsageError(f"--clean is {text!r}; allowed: FILE:FUNCTION, such as clean.py:clean")
    file = Path(file_text)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read --clean {file}: {error.strerror}") from error
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        return CleanFunction(_function(file, name), file, name, sha256)
    except UsageError as error:
        if not _raised_by_pyspark(error.__cause__):
            raise

        # Most of PySpark needs a session, which starts once all else is known to be right.
        def import_and_call(frame: DataFrame) -> Any:
            return _function(file, name)(frame)

        return CleanFunction(import_and_call, file, name, sha256)


def _raised_by_pyspark(error: BaseException | None) -> bool:
    import pyspark

    raised = traceback.extract_tb(error.__traceback__)[-1:] if error else []
    return any(Path(frame.filename).is_relative_to(Path(pyspark.__file__).parent) for frame in raised)


def _function(file: Path, name: str) -> Callable[[DataFrame], Any]:
    module = _load(file)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        said = "which is no function" if name in vars(module) else "which is not there"
        raise UsageError(f"--clean names {name!r} of {file}, {said}{near(name, functions) if functions else ''}")
    found: Callable[[DataFrame], Any] = function
    return found


def _load(file: Path) -> ModuleType:
    from pyspark import cloudpickle

    spec = spec_of_script(file.stem, file.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"--clean {file} is no Python file; allowed: a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.absolute().parent)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    shadowed = sys.modules.get(file.stem)
    # Pickling looks a function's module up by name.
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if shadowed is not None:
            sys.modules[file.stem] = shadowed
        else:
            del sys.modules[file.stem]
        raise UsageError(_told(file, error)) from error
    finally:
        sys.path.remove(folder)
    # The workers cannot import what lies beside the file: it is sent to them.
    for name in {*(set(sys.modules) - before), file.stem}:
        found = sys.modules[name]
        where = getattr(found, "__file__", None)
        if where and str(Path(where).parent).startswith(folder) and "site-packages" not in where:
            cloudpickle.register_pickle_by_value(found)
    return module


def _told(file: Path, error: BaseException) -> str:
    """The error in one line, with its place."""
    return f"{_place(file, error)}: {text_of_error(error)}"


def _place(file: Path, error: BaseException) -> str:
    """The innermost line of the user's file."""
    name = str(file.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    if isinstance(error, SyntaxError) and error.filename == name:
        lines = [error.lineno]
    return f"{file}:{lines[-1]}" if lines else str(file)
