"""Turns text files into a feed with Spark, or adds what is new to a feed: `squall prepare`.

Guarantees
    * FEED is either what it was before or a complete feed with all that is new, whenever this process is killed
      (`pipeline.staging`). A reader of the former feed can go on reading it.
    * Each file of the input is in the feed once. A second run reads only files that are new; one that changed after it
      was read is refused, as its old rows are in the feed.
    * No line is left out silently: one that is not text is in the quarantine table with the reason.
    * The same input and number of partitions give the same rows.

Relies on FEED's parent being one file system that knows rename and flock. One run at a time writes a FEED; a second one
is refused. No row passes through this process: Spark's Python workers write the files of the feed.

::

    find_files ─► what is new ─► balance ─► one Spark task per partition: read ─┬─ text ────► FEED/rows
                                                                               └─ refused ──► FEED/quarantine
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural
from squall.pipeline.corpus import Corpus, InputFile, find_files
from squall.pipeline.increment import Numbered, first_manifest, grown, places
from squall.pipeline.inputs import Change, SourceFile, changed_since, compare, load_sources, sources_bytes
from squall.pipeline.manifest import (
    MANIFEST_NAME,
    QUARANTINE_NAME,
    ROWS_NAME,
    SOURCES_NAME,
    Manifest,
    PartFile,
    load_manifest,
)
from squall.pipeline.progress import Progress, told_rows
from squall.pipeline.session import spark_session
from squall.pipeline.staging import PROGRESS_NAME, clear_orphans, siblings, staged
from squall.pipeline.written import Written

DEFAULT_PARTITIONS = 4
#: Most partitions: each is a task and a file, so more are a mistake on one machine.
MAX_PARTITIONS = 1024
#: Quarantined lines, skipped and vanished files shown by name: enough for examples.
SHOWN = 10


@dataclass(frozen=True)
class Prepared:
    """The outcome of prepare: the manifest, what this run added, and the first few of what is not in the feed."""

    feed: Path
    manifest: Manifest
    quarantine_shown: tuple[str, ...]
    skipped_shown: tuple[str, ...]
    added_files: int = 0
    added_rows: int = 0
    vanished: tuple[str, ...] = ()
    """Files of the feed that are gone from the input; their rows stay."""


def prepare(
    source: Path,
    feed: Path,
    *,
    partitions: int | None = None,
    pattern: str | None = None,
    overwrite: bool = False,
    progress: Progress = lambda line: None,
) -> Prepared:
    """Make `feed` from the text files in `source`, or add those that are new. Wrong use is refused before the JVM
    starts. `partitions`: of a new feed; DEFAULT_PARTITIONS if None."""
    if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(f"partitions is {partitions}; allowed: 1 to {MAX_PARTITIONS}")
    target = feed.resolve()
    if target in (source.resolve(), *source.resolve().parents):
        raise UsageError(f"feed {feed} would replace its own input {source}; choose another directory")
    progress(f"looking for text files in {source}")
    corpus = find_files(source, pattern, exclude=[target, *siblings(target)])
    recipe = {"format": "text", "glob": pattern}
    with staged(target, overwrite) as staging:
        former = None if overwrite else _former(target)
        if former:
            partitions = partitions or len(former.partitions)
            _check_recipe(target, former, {"input": str(source.absolute()), "partitions": partitions, **recipe})
        known = load_sources(target, former) if former else {}
        change = compare(corpus.root, corpus.files, known)
        _check_change(source, target, change)
        if not change.new:
            if former is None:
                matching = f" matching {pattern}" if pattern else ""
                raise UsageError(f"input {source} has no text file{matching}{_skipped_note(corpus)}")
            progress(f"nothing new among {plural(change.known, 'file')}")
            return Prepared(feed, former, (), corpus.skipped_binary[:SHOWN], vanished=tuple(change.vanished))
        base = former or first_manifest(
            str(source.absolute()), partitions or DEFAULT_PARTITIONS, recipe, fields=("text",)
        )
        return _add(feed, base, corpus, change, staging, progress)


def _former(target: Path) -> Manifest | None:
    """The manifest of the feed that is there already."""
    if not (target / MANIFEST_NAME).exists():
        return None
    former = load_manifest(target)
    clear_orphans(target, former.file_names)
    return former


def _check_recipe(target: Path, former: Manifest, wanted: dict[str, Any]) -> None:
    """An increment must be made as those before it: the rows of a feed have one meaning."""
    made = {"input": former.input, "partitions": len(former.partitions), **former.recipe}
    for name, value in wanted.items():
        if value != made.get(name):
            raise UsageError(
                f"feed {target} was made with {name} {_shown(made.get(name))}, and now it is {_shown(value)}; "
                "--overwrite makes the feed anew"
            )


def _shown(value: Any) -> str:
    return "not given" if value is None else value if isinstance(value, str) else repr_of(value)


def _check_change(source: Path, target: Path, change: Change) -> None:
    if count := len(change.changed):
        more = f" and {count - SHOWN:,} more" if count > SHOWN else ""
        raise UsageError(
            f"{plural(count, 'file')} of {source} changed after feed {target} took in the rows: "
            f"{', '.join(change.changed[:SHOWN])}{more}; --overwrite makes the feed anew"
        )


def _add(
    feed: Path, base: Manifest, corpus: Corpus, change: Change, staging: Path, progress: Progress
) -> Prepared:
    """Write an increment and the manifest with it."""
    from squall.pipeline.part_writer import rows_so_far
    from squall.pipeline.text_job import write_lines

    increment = Numbered.after(base)
    spots = places(base, len(base.partitions), increment, str(staging))
    for name in (ROWS_NAME, QUARANTINE_NAME, SOURCES_NAME, PROGRESS_NAME):
        (staging / name).mkdir()
    new = f"{len(change.new):,} {'new ' if base.increments else ''}{'file' if len(change.new) == 1 else 'files'}"
    progress(f"found {new}, starting Spark")
    with spark_session("squall prepare") as spark:
        progress(f"reading {new} into {plural(len(spots), 'partition')}")
        with told_rows(lambda: rows_so_far(staging), progress):
            written = write_lines(spark, corpus.root, change.new, spots)
    _check_unchanged(change.new)
    sources = _list_sources(staging, increment, [source for one in written for source in one.sources])
    manifest = grown(base, written, sources, len(corpus.skipped_binary))
    if manifest.rows == 0:
        raise UsageError(
            f"input {corpus.root} has no line of text: {new} read, "
            f"{plural(manifest.quarantined, 'line')} quarantined{_skipped_note(corpus)}"
        )
    _write_manifest(staging, manifest)
    return Prepared(
        feed, manifest, _first_refused(written), corpus.skipped_binary[:SHOWN], len(change.new),
        manifest.increments[-1].rows, tuple(change.vanished),
    )


def _check_unchanged(files: Iterable[InputFile]) -> None:
    for file in files:
        if not file.problem and changed_since(file):
            raise UsageError(f"{file.location} changed while it was read; run squall prepare again")


def _first_refused(written: Iterable[Written]) -> tuple[str, ...]:
    return tuple(str(refused) for refused in sorted(refused for one in written for refused in one.shown)[:SHOWN])


def _list_sources(staging: Path, increment: Numbered, sources: list[SourceFile]) -> PartFile:
    """Write the list of the files that an increment was made from."""
    name = f"{SOURCES_NAME}/{increment.stem()}.jsonl"
    data = sources_bytes(sorted(sources, key=lambda source: source.path))
    (staging / name).write_bytes(data)
    return PartFile(name, len(sources), len(data), hashlib.sha256(data).hexdigest())


def _write_manifest(staging: Path, manifest: Manifest) -> None:
    temporary = staging / f"{MANIFEST_NAME}.tmp"
    temporary.write_text(json.dumps(manifest.to_dict(), indent=2) + "\n", encoding="utf-8")
    temporary.rename(staging / MANIFEST_NAME)


def _skipped_note(corpus: Corpus) -> str:
    count = len(corpus.skipped_binary)
    return f", {plural(count, 'binary file')} skipped" if count else ""
