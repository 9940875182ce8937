"""Reads a file that people write as YAML, strictly: only the parts of YAML that belong in a plan, with line numbers.

Guarantees: bounded in size, depth and time for any file. Aliases, tags, duplicate keys, several documents, control
characters and text that is not UTF-8 are mistakes with a line. Values stay text: the reader's language defines
numbers and times, not YAML. `noun` is what the messages call the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from squall.engine.errors import UsageError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 256 * 1024
"""Some thousand faults or rules, which take about a second to read."""
MAX_DEPTH = 6
"""Levels of nesting: rules, list of rules, rule, columns, list of values, value."""


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    line: int
    entries: dict[str, tuple[int, Node]]
    """Key -> its line and value."""


Node: TypeAlias = Scalar | Sequence | Mapping


class LineError(UsageError):
    """A mistake on a line of such a file."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        super().__init__(text)


def read_bytes(path: Path) -> bytes:
    """The content of a file. UsageError if it cannot be read or is too big."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"it is longer than {MAX_BYTES // 1024} KiB; allowed: at most that")
    return data


def read_nodes(data: bytes, noun: str) -> Node | None:
    """The file's one document; None for an empty one. LineError for the first mistake."""
    import yaml

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LineError(data.count(b"\n", 0, error.start) + 1, "is not UTF-8") from None
    try:
        return _document(yaml.parse(text, Loader=yaml.SafeLoader), noun)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise LineError(line, f"holds a character that no {noun} may hold: {chr(error.character)!a}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.context, error.problem) if part]
        raise LineError(mark.line + 1 if mark else 1, f"is not YAML: {', '.join(parts)}") from None


def _document(events: Iterator[yaml.Event], noun: str) -> Node | None:
    import yaml

    found: Node | None = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            if found is not None:
                raise LineError(_line(event), f"begins a second document; a {noun} is one")
        elif isinstance(event, yaml.NodeEvent):
            found = _node(event, events, 1, noun)
    return None if isinstance(found, Scalar) and not found.text and not found.is_quoted else found


def _node(event: yaml.NodeEvent, events: Iterator[yaml.Event], depth: int, noun: str) -> Node:
    import yaml

    line = _line(event)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise LineError(line, f"holds an alias or anchor ({event.anchor[:40]!r}); write it out")
    if getattr(event, "tag", None) is not None:
        raise LineError(line, f"holds a tag ({event.tag[:40]!r}); allowed: text, lists and keys")
    if depth > MAX_DEPTH:
        raise LineError(line, f"is nested too deep for a {noun}")
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(line, event.value, event.style is not None)
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_node(item, events, depth + 1, noun))
        return Sequence(line, tuple(items))
    entries: dict[str, tuple[int, Node]] = {}
    while not isinstance(item := next(events), yaml.MappingEndEvent):
        key = _node(item, events, depth + 1, noun)
        if not isinstance(key, Scalar):
            raise LineError(key.line, "has a list as a key; a key is text")
        if key.text in entries:
            raise LineError(key.line, f"has the key {key.text[:80]!r} twice")
        entries[key.text] = key.line, _node(next(events), events, depth + 1, noun)
    return Mapping(line, entries)


def _line(event: yaml.Event) -> int:
    line: int = event.start_mark.line
    return line + 1
