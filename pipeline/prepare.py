"""Turns files into a feed with Spark, or adds what is new to a feed: `squall prepare`.

Guarantees
    * FEED is either what it was before or a complete feed with all that is new, whenever this process is killed
      (`feed.staging`). A reader of the former feed can go on reading it.
    * Each file of the input is in the feed once. A second run reads only files that are new, and new lines at the end
      of text files; a file that changed in another way is refused, as its old rows are in the feed.
    * No line is left out silently: one that is not text is in the quarantine table with the reason.
    * The same input and number of partitions give the same rows.

Relies on FEED's parent being one file system that knows rename and flock. One run at a time writes a FEED; a second one
is refused. No row passes through this process: Spark's Python workers write the files of the feed.

::

    find_files ─► what is new ─► Spark's job (`pipeline.prepare_job`) ─► staging directory ─► FEED
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.pipeline.feed.manifest import (
    MANIFEST_NAME,
    QUARANTINE_NAME,
    ROWS_NAME,
    SOURCES_NAME,
    Manifest,
    PartFile,
    Written,
    check_files,
    first_manifest,
    grown,
    load_manifest,
    new_stem,
)
from squall.pipeline.feed.staging import clear_orphans, staged
from squall.pipeline.prepare_job import run_job
from squall.pipeline.read.input_files import Corpus, InputFile, find_files
from squall.pipeline.read.input_frame import check_quotes, check_schemas
from squall.pipeline.read.inputs import (
    Change,
    SourceFile,
    changed_since,
    compare,
    load_sources,
    path_in,
    sha256_of,
    sources_bytes,
)
from squall.pipeline.read.lines import without_open_line
from squall.pipeline.read.recipe import Recipe
from squall.pipeline.session import spark_session

DEFAULT_PARTITIONS = 4
#: Called with one line about the present step.
Progress: TypeAlias = Callable[[str], None]
#: Between two looks at the names, sizes and times of change, with `--follow`.
LOOK_SECS = 1.0
#: How soon a request to stop is seen.
STOP_SECS = 0.05
#: Quarantined lines and vanished files shown by name: enough for examples.
SHOWN = 10


class NothingYet(UsageError):
    """The input holds nothing for a first increment."""


class ChangedMeanwhile(UsageError):
    """A file was changed while it was read: nothing of this run is in the feed."""

    def __init__(self, location: str) -> None:
        self.what = f"{location} changed while it was read"
        super().__init__(f"{self.what}; run squall prepare again")


@dataclass(frozen=True)
class Prepared:
    """The outcome of prepare: the manifest, what this run added, and the first few of what is not in the feed."""

    feed: Path
    manifest: Manifest
    quarantine_shown: tuple[str, ...]
    added_files: int = 0
    added_rows: int = 0
    vanished: tuple[str, ...] = ()
    """Files of the feed that are gone from the input; their rows stay."""
    left_out: tuple[str, ...] = ()
    """Feeds inside the input."""


def prepare(
    source: Path,
    feed: Path,
    *,
    partitions: int | None = None,
    overwrite: bool = False,
    progress: Progress = lambda line: None,
    **how: Any,
) -> Prepared:
    """Make `feed` from the files in `source`, or add those that are new.

    `partitions`: of a new feed; DEFAULT_PARTITIONS if None. `how`: see Recipe. The last line of a text file waits until
    it has an end, which `progress` tells. NothingYet if there is nothing for a feed."""
    target = feed.resolve()
    if target in (source.resolve(), *source.resolve().parents):
        raise UsageError(f"feed {feed} would replace its own input {source}; choose another directory")
    recipe = Recipe(source, **how)
    progress(f"looking for {recipe.format_} files in {source}")
    corpus = find_files(source, recipe.pattern, is_text=recipe.is_text)
    with staged(target, overwrite) as staging:
        former = None if overwrite else _former(target)
        if former:
            recipe.check_as_before(target, former, partitions)
        known = load_sources(target, former) if former else {}
        change = compare(corpus.root, corpus.files, known, may_grow=recipe.is_text)
        if recipe.is_text:
            change.new = _ended(change.new, progress)
        _check_change(source, target, change)
        if not change.new:
            if former is None:
                matching = f" matching {recipe.pattern}" if recipe.pattern else ""
                raise NothingYet(f"input {source} has no {recipe.format_} file{matching}{_left_out_note(corpus)}")
            progress(f"nothing new among {plural(change.known, 'file')}")
            return Prepared(feed, former, (), vanished=tuple(change.vanished), left_out=corpus.left_out)
        count = partitions or DEFAULT_PARTITIONS
        base = former or first_manifest(str(source.absolute()), count, recipe.to_dict())
        return _add(feed, recipe, base, corpus, change, staging, progress)


def _ended(files: Sequence[InputFile], progress: Progress) -> list[InputFile]:
    """The files as far as their lines have an end: a writer may be in the middle of what follows."""
    ended = [without_open_line(file) if file.size_bytes else file for file in files]
    waits = [old.name for old, new in zip(files, ended, strict=True) if old != new]
    if waits:
        more = f" and {len(waits) - SHOWN:,} more" if len(waits) > SHOWN else ""
        progress(f"the last line waits until it has an end: {', '.join(waits[:SHOWN])}{more}")
    return [file for file in ended if file]


def _former(target: Path) -> Manifest | None:
    """The manifest of the feed that is there already."""
    if not (target / MANIFEST_NAME).exists():
        return None
    former = load_manifest(target)
    check_files(target, former)
    clear_orphans(target, former.file_names)
    return former


def nothing_yet(feed: Path, source: Path) -> Manifest:
    """Return the manifest of a feed to which nothing was added: its own, or an empty one for a feed not yet made."""
    if (feed / MANIFEST_NAME).exists():
        return load_manifest(feed)
    return Manifest(str(source.absolute()), ())


def _check_change(source: Path, target: Path, change: Change) -> None:
    if count := len(change.changed):
        more = f" and {count - SHOWN:,} more" if count > SHOWN else ""
        raise UsageError(
            f"{plural(count, 'file')} of {source} changed after feed {target} took in the rows: "
            f"{', '.join(change.changed[:SHOWN])}{more}; --overwrite makes the feed anew"
        )


def _add(
    feed: Path, recipe: Recipe, base: Manifest, corpus: Corpus, change: Change, staging: Path, progress: Progress
) -> Prepared:
    """Write an increment and the manifest with it."""
    for name in (ROWS_NAME, QUARANTINE_NAME, SOURCES_NAME):
        (staging / name).mkdir()
    new = f"{len(change.new):,} {'new ' if base.increments else ''}{'file' if len(change.new) == 1 else 'files'}"
    if not recipe.is_text:
        recipe = _readable(recipe, change.new)

    progress(f"found {new}, starting Spark")
    with ThreadPoolExecutor(1) as thread:
        # Spark reads other files than text itself, so their checksums are computed meanwhile.
        checked = thread.submit(_sources_of, corpus.root, () if recipe.is_text else change.new)
        with spark_session("squall prepare") as spark:
            progress(f"reading {new} into {plural(len(base.partitions), 'partition')}")
            done, written = run_job(spark, recipe, base, corpus.root, change.new, staging)
        sources = [*checked.result(), *(source for one in written for source in one.sources)]
    _check_unchanged(change.new, may_grow=recipe.is_text)
    new_files = sum(not file.start_bytes for file in change.new)
    listed = _list_sources(staging / SOURCES_NAME / f"{new_stem(base)}.jsonl", sources)
    manifest = grown(done, written, listed, new_files)
    if manifest.rows == 0:
        raise NothingYet(_nothing_left(corpus, recipe, manifest, new))
    (staging / MANIFEST_NAME).write_text(json.dumps(manifest.to_dict(), indent=2) + "\n", encoding="utf-8")
    return Prepared(
        feed, manifest, _first_refused(written), len(change.new), manifest.increments[-1].rows,
        tuple(change.vanished), corpus.left_out,
    )


def _readable(recipe: Recipe, files: Sequence[InputFile]) -> Recipe:
    """Refuse files that Spark would not read whole. Return how to read these."""
    for file in files:
        if file.problem:
            raise UsageError(f"{file.location} {file.problem}")
    if recipe.format_ in ("parquet", "orc"):
        check_schemas(recipe.format_, files)
    if recipe.format_ == "csv" and check_quotes(files, recipe.options):
        return replace(recipe, options={**recipe.options, "multiLine": "false"})
    return recipe


def _nothing_left(corpus: Corpus, recipe: Recipe, manifest: Manifest, read: str) -> str:
    what = "line of text" if recipe.is_plain else "good row"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in manifest.quarantine_reasons.items())
    return (
        f"input {corpus.root} has no {what}: {read} read, {plural(manifest.quarantined, 'line')} quarantined"
        f"{f' ({reasons})' if reasons else ''}{_left_out_note(corpus)}"
    )


def _sources_of(root: str, files: Sequence[InputFile]) -> list[SourceFile]:
    """The files that no task of the job notes itself."""
    return [
        SourceFile(path_in(root, file), file.size_bytes, file.mtime_ns, sha256_of(file.location)) for file in files
    ]


def _check_unchanged(files: Iterable[InputFile], *, may_grow: bool) -> None:
    """`may_grow`: whether no more is read of a file than what was found. Spark reads files to their end."""
    for file in files:
        if not file.problem and changed_since(file, may_grow=may_grow):
            raise ChangedMeanwhile(file.location)


def _first_refused(written: Iterable[Written]) -> tuple[str, ...]:
    return tuple(str(refused) for refused in sorted(refused for one in written for refused in one.shown)[:SHOWN])


def _list_sources(path: Path, sources: list[SourceFile]) -> PartFile:
    """Write the list of the files that an increment was made from."""
    data = sources_bytes(sorted(sources, key=lambda source: source.path))
    path.write_bytes(data)
    return PartFile(f"{SOURCES_NAME}/{path.name}", len(sources), len(data), hashlib.sha256(data).hexdigest())


def _left_out_note(corpus: Corpus) -> str:
    return f", left out {', '.join(corpus.left_out[:SHOWN])}" if corpus.left_out else ""


def follow(
    once: Callable[[], Prepared], look: Callable[[], Hashable], should_stop: Callable[[], bool], progress: Progress
) -> Prepared | None:
    """Prepare `once` whenever `look` sees something else, until `should_stop`. The last outcome, with what all
    increments added; None if there was none."""
    last: Prepared | None = None
    seen: Hashable = None
    while not should_stop():
        now = look()
        if now != seen:
            seen = now
            try:
                made = once()
            except NothingYet as error:
                progress(f"{error}; waiting for more")
            except ChangedMeanwhile as error:
                progress(f"{error.what}; trying again")
                seen = None
            else:
                if made.added_files:
                    progress(f"added {plural(made.added_rows, 'row')} of {plural(made.added_files, 'file')}")
                last = made if last is None else replace(
                    made, added_files=last.added_files + made.added_files, added_rows=last.added_rows + made.added_rows,
                )
        until = time.monotonic() + LOOK_SECS
        while time.monotonic() < until and not should_stop():
            time.sleep(STOP_SECS)
    return last
