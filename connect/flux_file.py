"""Reads a Flux file: a topology in YAML, as Apache Storm's Flux has it, into parts that know their place in the file.

Guarantees
    * A mistake is told as FILE:LINE:COLUMN, with what is allowed, and all others with it: only one in the YAML itself
      ends the reading.
    * What `${NAME}` stands for is data: it cannot add a key, or end a text. Unquoted, it may be a number or a list.
    * `$${NAME}` stands for `${NAME}`, which a connector fills in where its worker runs: so a secret is in no topology.

Relies on: PyYAML for nodes and their places, msgspec for the types of values.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml

from squall.connect.flux_parts import Arguments, BeanDef, FluxPart, IncludeDef, TopologyDef
from squall.engine.errors import TopologyError, UsageError
from squall.engine.foreign.text import repr_of, text_of_error

_VARIABLE = re.compile(r"\$?\$\{([^{}]*)\}")
P = TypeVar("P", bound=FluxPart)


@dataclass(frozen=True)
class Reference:
    """Ids of components, in place of an argument."""

    ids: str | list[str]
    place: str


def near(name: str, names: Iterable[str]) -> str:
    """A hint: the most similar name, or else all of them."""
    known = list(names)
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]}?" if found else f"; allowed: {', '.join(known) or 'none'}"


def refuse(mistakes: Iterable[str]) -> None:
    """Raise if there are mistakes; a single one is the message as it is."""
    if found := list(dict.fromkeys(mistakes)):
        raise UsageError(found[0]) if len(found) == 1 else TopologyError(found)


def read_flux(path: str, arguments: Sequence[str]) -> TopologyDef:
    """Read a file and those that it includes; none of users' code is imported. UsageError names every mistake."""
    by_file, given = _given(arguments)
    values = {**{f"ENV-{name}": value for name, value in os.environ.items()}, **by_file, **given}
    mistakes: list[str] = []
    used: set[str] = set()

    def fill(text: str, place: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[0].startswith("$$"):
                return found[0][1:]
            used.add(found[1])
            if found[1] not in values:
                how = f"write -- {found[1]}=VALUE, or -- --filter FILE"
                how = "set that variable" if found[1].startswith("ENV-") else how
                mistakes.append(f"{place}: nothing is given for {found[0]}; {how}")
            return values.get(found[1], "")

        return _VARIABLE.sub(value, text)

    found = _File(Path(path), fill, mistakes, ()).topology
    mistakes += [f"ARG {name}=...: {path} has no ${{{name}}}{near(name, used)}" for name in given if name not in used]
    refuse(mistakes)
    return found


def _given(arguments: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Read ARGS: the values in files of Java properties (--filter FILE), and those given as NAME=VALUE."""
    by_file, given, rest = {}, {}, iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--filter":
            path = value or next(rest, "")
            try:
                lines = Path(path).read_text("utf-8").splitlines()
            except (OSError, ValueError) as error:
                raise UsageError(f"--filter {path} cannot be read: {text_of_error(error)}") from None
            for number, line in enumerate(map(str.strip, lines), 1):
                if "\\" in line:
                    raise UsageError(f"{path}:{number}: a \\ is not understood; write the character itself")
                if line and line[0] not in "#!":
                    name, _, value = re.sub(r"\s*[=:\s]\s*", "=", line, count=1).partition("=")
                    by_file[name] = value
        elif equals and not name.startswith("-"):
            given[name] = value
        else:
            raise UsageError(f"ARG {word!r} is not understood; a Flux file takes NAME=VALUE and --filter FILE")
    return by_file, given


class _Nodes(yaml.SafeLoader):  # type: ignore[misc]
    """The nodes of a text, in which `fill` puts values for variables; `at`: the place of all, if it is such a value."""

    def __init__(self, text: str | bytes, fill: Callable[[Any], str] | None, at: yaml.Mark | None = None) -> None:
        self._fill, self._at = fill, at
        super().__init__(text)

    def get_mark(self) -> yaml.Mark:
        return self._at or super().get_mark()

    def compose_scalar_node(self, anchor: str | None) -> yaml.Node:
        node = super().compose_scalar_node(anchor)
        if self._fill is not None and "${" in node.value:
            whole, node.value = _VARIABLE.fullmatch(node.value), self._fill(node)
            if node.style is None and whole and node.value[:1] in ("[", "{"):
                node = self.anchors[anchor] = _Nodes(node.value, None, node.start_mark).get_single_node()
            elif node.style is None:
                node.tag = self.resolve(yaml.ScalarNode, node.value, (True, False))
        return node

    def compose_mapping_node(self, anchor: str | None) -> yaml.Node:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.composer.ComposerError(None, None, f"key {key.value!r} is there twice", key.start_mark)
            seen.add(str(key.value))
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            why = f"{repr_of(node.value)} is none of what it looks like ({error}); write a text in quotes"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark) from None

    def pairs(self, node: yaml.Node) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """(key, its node, the node of its value) of each; none if it is no mapping."""
        if not isinstance(node, yaml.MappingNode):
            return []
        self.flatten_mapping(node)
        return [(str(key.value), key, value) for key, value in node.value]


class _File:
    """One file, being read; `above`: those that include it."""

    def __init__(self, path: Path, fill: Callable[[str, str], str], mistakes: list[str], above: Sequence[Path]) -> None:
        self._path, self._fill, self._mistakes, self._above = path, fill, mistakes, (*above, path.resolve())
        text = path.read_bytes()
        try:
            self._nodes = _Nodes(text, lambda node: fill(node.value, self._place(node.start_mark)))
            node = self._nodes.get_single_node()
            if node is None:
                raise UsageError(f"{path} is empty; a Flux file has spouts, bolts and streams, or a topologySource")
            self.topology = self._part(node, TopologyDef, "")
        except yaml.MarkedYAMLError as error:
            raise UsageError(f"{self._place(error.problem_mark or error.context_mark)}: {error.problem}") from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            place = f"{path}:{before.count(10) + 1}:{len(before) - before.rfind(10)}"  # 10: a line feed
            raise UsageError(f"{place}: a character that YAML has not: {error.reason}") from None
        except RecursionError:
            place = self._place(self._nodes.get_mark())
            raise UsageError(f"{place}: what begins before this is nested too deeply") from None
        if self.topology.worker_hooks:
            place = self.topology.at("workerHooks")
            mistakes.append(f"{place}: Squall has no workerHooks; use open and prepare of components, or a TaskHook")
        for beans in self.topology.components, [*self.topology.spouts, *self.topology.bolts]:
            first: dict[str, BeanDef] = {}
            mistakes += [
                f"{bean.at('id')}: id {bean.id!r} is there twice, first at {first[bean.id].at('id')}"
                for bean in beans if first.setdefault(bean.id, bean) is not bean
            ]
        for include in self.topology.includes:
            self._include(include)

    def _place(self, mark: yaml.Mark) -> str:
        return f"{self._path}:{mark.line + 1}:{mark.column + 1}"

    def _wrong(self, node: yaml.Node, text: str) -> None:
        self._mistakes.append(f"{self._place(node.start_mark)}: {text}")

    def _include(self, include: IncludeDef) -> None:
        """Add what another file has; of what both have, `override` decides."""
        if include.file is None:
            return  # which was told
        path = self._path.parent / include.file
        if include.resource:
            self._mistakes.append(f"{include.at('resource')}: resource is true, but there is no jar; name a file")
        elif path.resolve() in self._above:
            self._mistakes.append(f"{include.at('file')}: {include.file!r} includes itself")
        elif not path.is_file():
            self._mistakes.append(f"{include.at('file')}: there is no file {str(path)!r}")
        else:
            try:
                self.topology.include(_File(path, self._fill, self._mistakes, self._above).topology, include.override)
            except UsageError as error:
                self._mistakes.append(str(error))

    def _part(self, node: yaml.Node, kind: type[P], who: str) -> P:
        """Read a mapping; `who`: what it describes, for messages."""
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        found: dict[str, Any] = {each.name: None for each in fields.values() if each.required}
        places = {"": self._place(node.start_mark)}
        types = get_type_hints(kind, include_extras=True)
        for name, key, value in self._nodes.pairs(node):
            if name not in fields:
                self._wrong(key, f"{who}unknown key {name!r:.80}{near(name, fields)}")
                continue
            if value.tag == "tag:yaml.org,2002:null" and not fields[name].required:
                continue
            places[name] = self._place(value.start_mark)
            places |= {f"{name}.{inner}": self._place(at.start_mark) for inner, at, _ in self._nodes.pairs(value)}
            read = self._value(value, types[fields[name].name], name, who)
            if read is not msgspec.UNSET:
                found[fields[name].name] = read
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{who}a mapping is needed here; allowed keys: {', '.join(fields)}")
        elif missing := [name for name, each in fields.items() if each.required and name not in places]:
            self._wrong(node, f"{who}{' and '.join(missing)} is missing")
        part = kind(**found)
        part.__dict__["places"] = places
        return part

    def _value(self, node: yaml.Node, kind: Any, key: str, who: str) -> Any:
        """Read a value of the type that a key has; UNSET if it is of another one."""
        types = [one for one in (kind, *get_args(kind)) if isinstance(one, type)]
        part = next((one for one in types if issubclass(one, FluxPart)), None)
        if part is not None and get_origin(kind) is not list:
            return self._part(node, part, who or f"{key}: ")
        if part is not None and isinstance(node, yaml.SequenceNode):
            return [self._part(each, part, who or self._title(key, each)) for each in node.value]
        if kind == Arguments and isinstance(node, yaml.MappingNode):
            return {name: self._argument(value) for name, _, value in self._nodes.pairs(node)}
        if kind == Arguments and isinstance(node, yaml.SequenceNode):
            return [self._argument(each) for each in node.value]
        data = self._nodes.construct_object(node, deep=True)
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            said = str(error).partition(" - at ")[0].lower().replace("array", "list").replace("object", "mapping")
            hint = near(str(data), get_args(kind)) if get_origin(kind) is Literal else f"; {said}"
            self._wrong(node, f"{who}{key} is {repr_of(data)}{hint}")
            return msgspec.UNSET

    def _argument(self, node: yaml.Node) -> Any:
        data = self._nodes.construct_object(node, deep=True)
        if not isinstance(data, dict) or data.keys() not in ({"ref"}, {"reflist"}):
            return data
        ids = next(iter(data.values()))
        if not isinstance(ids, str if "ref" in data else list):
            self._wrong(node, f"{repr_of(data)} refers to nothing; allowed: ref: ID, or reflist: [ID, ...]")
        return Reference(ids, self._place(node.start_mark))

    def _title(self, key: str, node: yaml.Node) -> str:
        """Say which one of a list it is, such as "bolt 'count': "."""
        values = {name: repr_of(value.value) for name, _, value in self._nodes.pairs(node)}
        return f"{key.removesuffix('s')} {values.get('id', values.get('name', ''))}".strip() + ": "
