"""Flux files: what a file says is what is made, and each mistake is told with its place."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from squall.cli.loader import load_topology
from squall.connect.flux import load_flux
from squall.connect.flux_file import read_flux
from squall.engine.errors import UsageError
from squall.testing import complete_topology
from tests.schemas import flux_schema, schema
from tests.unit import flux_words

EXAMPLE = Path(__file__).parents[2] / "examples" / "flux" / "topology.yaml"
WORDS = """\
name: words
config:
  topology.workers: 2
  shop.currency: EUR
components:
  - id: outer
    className: tests.unit.flux_words.Thing
    constructorArgs: [1, {ref: inner}, {reflist: [inner, made]}, {a: {ref: inner}}]
    configMethods:
      - name: with_tag
      - {name: with_tag, args: [{ref: inner}, x]}
  - id: inner
    className: tests.unit.flux_words.Thing$Inner
  - id: made
    className: tests.unit.flux_words.Thing
    factory: of
    factoryArgs: [2]
    properties: [{name: tag, reflist: [inner]}]
spouts:
  - id: words
    className: tests.unit.flux_words.words
    config: {topology.max.spout.pending: 7}
bolts:
  - id: same
    className: tests.unit.flux_words.same
    parallelism: 2
    numTasks: 4
  - id: count
    className: tests.unit.flux_words.Count
    constructorArgs: {limit: 3}
    properties:
      - {name: tag, ref: outer}
streams:
  - name: "words --> same"
    from: words
    to: same
    grouping:
      type: SHUFFLE
  - {from: same, to: count, grouping: {type: FIELDS, args: [word]}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str, *arguments: str) -> Any:
    Path("t.yaml").write_text(text)
    return load_flux("t.yaml", list(arguments))[0]


def refusal(text: str, *arguments: str) -> list[str]:
    """Every mistake in a file."""
    with pytest.raises(UsageError) as caught:
        load(text, *arguments)
    said = str(caught.value)
    assert "\n" not in said
    return list(getattr(caught.value, "mistakes", [said]))


def test_a_file_says_all_of_a_topology() -> None:
    topology = load(WORDS)
    assert topology.config.explicit() == {"workers": 2, "shop.currency": "EUR"}
    assert topology["words"].config == {"max_spout_pending": 7}
    assert (topology["same"].executors, topology["same"].tasks) == (2, 4)
    count = topology["count"].component
    assert count.limit == 3
    one, inner, several, plain = count.tag.given
    assert one == 1
    assert isinstance(inner, flux_words.Thing.Inner)
    # Each is made once; a `ref` deeper inside is a value.
    assert several[0] is inner
    assert plain == {"a": {"ref": "inner"}}
    assert (several[1].given, several[1].tag[0]) == (("factory", 2), inner)
    assert count.tag.calls == [(), (inner, "x")]
    assert sorted(complete_topology(topology)["count"]) == [("a", 1), ("a", 1), ("b", 1)]


@pytest.mark.parametrize("type_", sorted({
    "ALL", "CUSTOM", "DIRECT", "FIELDS", "GLOBAL", "LOCAL_OR_SHUFFLE", "NONE", "PARTIAL_KEY", "SHUFFLE"
}))
def test_every_grouping(type_: str) -> None:
    own = "customClass: {className: tests.unit.flux_words.First}" if type_ == "CUSTOM" else "args: [word]"
    text = WORDS.replace("type: SHUFFLE", f"type: {type_}\n      streamId: default\n      {own}")
    if type_ == "DIRECT":
        [mistake] = refusal(text)
        assert mistake.startswith("t.yaml:34:5: bolt 'same' uses direct grouping on stream 'default' of 'words', which")
    else:
        assert load(text)["same"].subscriptions[0].grouping == type_.lower()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        # The YAML.
        ("name: words", "name: words\nname: other", "2:1: key 'name' is there twice"),
        ("limit: 3", "limit: !!python/name:os.system 3", "30:30: could not determine a constructor for the tag"),
        ("[2]", "&a [*a]", "17:18: found unconstructable recursive node"),
        ("limit: 3", "limit: 2001-99-99", "30:30: '2001-99-99' is none of what it looks like (month must be in 1..12)"),
        ("limit: 3", "limit: " + "[" * 2000 + "]" * 2000, "what begins before this is nested too deeply"),
        ("name: words", "name: \0", "1:7: a character that YAML has not: special characters are not allowed"),
        (WORDS, "", " is empty; a Flux file has spouts, bolts and streams, or a topologySource"),
        # The keys, and the types of values.
        ("    parallelism: 2", "    paralelism: 2", "26:5: bolt 'same': unknown key 'paralelism'; did you mean p"),
        ("[1, {ref: inner}", "[1, {ref: 3}", "8:26: {'ref': 3} refers to nothing; allowed: ref: ID, or refli"),
        # The settings.
        ("topology.workers: 2", "topology.worker: 2", "3:3: unknown setting topology.worker; did you mean topol"),
        ("shop.currency: EUR", "workers: 3", "4:3: setting workers is given twice: topology.workers = 2 and wo"),
        # What is imported, and called.
        ("words.Count", "words.Cuont", "29:16: bolt 'count': no class tests.unit.flux_words.Cuont; did you mean C"),
        ("flux_words.Count", "flux_wrds.Count", "29:16: bolt 'count': importing tests.unit.flux_wrds (from the "),
        ("limit: 3", "limit: -3", "30:22: bolt 'count': tests.unit.flux_words.Count() raised ValueError: limit -"),
        ("words.Count", "words.Thing", "28:5: component 'count' is <tests.unit.flux_words.Thing object>; allowed"),
        ("flux_words.words", "flux_words.NUMBER", "raised TypeError: 'int' object is not callable"),
        ("with_tag\n", "with_tga\n", "10:15: component 'outer': Thing has no 'with_tga'; did you mean with_tag?"),
        ("with_tag\n", "fails\n", "10:9: component 'outer': fails() raised LookupError: not here ("),
        ("factory: of", "factory: oof", "16:14: component 'made': Thing has no 'oof'; did you mean of?"),
        ("factory: of", "constructorArgs: [1]", "17:18: component 'made': factoryArgs have no effect; allo"),
        ("{name: tag, ref: outer}", "{name: tga, value: 1}", "32:16: bolt 'count': Count has no 'tga'; did you"),
        ("{name: tag, ref: outer}", "{name: tag}", "32:9: bolt 'count': property 'tag' needs one of value, ref"),
        # Ids.
        ("{ref: inner}, {", "{ref: iner}, {", "8:26: no component 'iner'; did you mean inner?"),
        ("- id: inner", "- id: outer", "12:9: id 'outer' is there twice, first at t.yaml:6:9"),
        ("factoryArgs: [2]", "factoryArgs: [ref: outer]", "17:19: component 'outer' needs itself: outer -> made -"),
        ("from: words", "from: wrds", "34:5: bolt 'same' subscribes to unknown component 'wrds'; did you mean"),
        ("args: [word]", "args: [wrd]", "39:5: bolt 'count' groups 'same' stream 'default' by unknown field 'wrd'"),
        ("type: SHUFFLE", "type: CUSTOM", "24:5: bolt 'same' has None as a custom grouping; allowed: a CustomGr"),
        ("  - {from", "  - {from: words, to: same, grouping: {type: ALL}}\n  - {from", "39:5: bolt 'same' has this"),
        # What Squall has not.
        ("config:\n", "workerHooks: [{id: a, className: b}]\nconfig:\n", "2:14: Squall has no workerHooks; use"),
        ("config:\n", "topologySource: {className: a.B}\nconfig:\n", "beside a topologySource there can be no spouts"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(old: str, new: str, said: str) -> None:
    assert old in WORDS
    assert any(said in mistake.removeprefix("t.yaml:") for mistake in refusal(WORDS.replace(old, new, 1)))


def test_all_mistakes_are_told_together() -> None:
    for wrong, lines in (
        ({"numTasks: 4": "numTask: 4", "type: SHUFFLE": "type: FAIR"}, ["27", "38"]),
        ({"words.Count": "words.Cuont", "words.same": "words.smae", "to: count": "to: x"}, ["25", "29", "39"]),
        ({"from: words": "from: x", "to: count": "to: x"}, ["39", "34"]),
        ({"words.words": "words.x", "to: count": "to: x"}, ["21", "39"]),
    ):
        text = WORDS
        for old, new in wrong.items():
            text = text.replace(old, new)
        assert [mistake.split(":")[1] for mistake in refusal(text)] == lines


def test_loads_of_the_resource_aware_scheduler_are_ignored_and_told() -> None:
    loads = "    numTasks: -1\n    cpuLoad: 50.5\n    onHeapMemoryLoad: -1"
    Path("t.yaml").write_text(WORDS.replace("    numTasks: 4", loads))
    topology, ignored = load_flux("t.yaml", [])
    assert topology["same"].tasks == 2
    assert ignored == [
        "t.yaml:28:14: 'same' has cpuLoad, which is ignored: Squall places no component by memory or CPU"]


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "a: [b # c")
    Path("dev.properties").write_text('# For me.\n! Also.\n\nname = first\nn:1\nhosts ["x", "y"]\n')
    text = WORDS.replace("[1, {ref", '["${name}-${ENV-PLACE}", {ref').replace("parallelism: 2", "parallelism: ${n}")
    more = "shop.hosts: ${hosts}\n  shop.n: '${n} $${n}'\n  shop.place: ${ENV-PLACE}"
    text = text.replace("shop.currency: EUR", more)
    topology = load(text, "name=second", "--filter", "dev.properties", "n=3")
    assert topology["same"].executors == 3
    assert topology["count"].component.tag.given[0] == "second-a: [b # c"
    assert dict(topology.config.extra) == {
        "shop.hosts": ["x", "y"], "shop.n": "3 ${n}", "shop.place": "a: [b # c"}
    assert refusal(text, "n=3", "hosts=a") == [
        "t.yaml:10:23: nothing is given for ${name}; write -- name=VALUE, or -- --filter FILE"]
    assert refusal(text, "name=x", "hosts=x", "n=[2,") == [
        "t.yaml:28:18: expected the node content, but found '<stream end>'"]
    assert refusal(WORDS, "nmae=x") == ["ARG nmae=...: t.yaml has no ${nmae}; allowed: none"]
    assert refusal(WORDS, "x") == ["ARG 'x' is not understood; a Flux file takes NAME=VALUE and --filter FILE"]
    assert refusal(WORDS.replace("EUR", "${ENV-NOT_SET}")) == [
        "t.yaml:4:18: nothing is given for ${ENV-NOT_SET}; set that variable"]
    Path("dev.properties").write_text("a=b\nc=C\\:\\x")
    assert refusal(WORDS, "--filter=dev.properties") == [
        "dev.properties:2: a \\ is not understood; write the character itself"]


@pytest.mark.parametrize("override", [False, True])
def test_includes(override: bool) -> None:
    Path("more").mkdir()
    Path("more/other.yaml").write_text(
        "name: other\nconfig: {topology.workers: 3, shop.more: '${more}'}\nincludes: [{file: last.yaml}]\n"
        "bolts:\n  - {id: last, className: tests.unit.flux_words.same}\n"
        "  - {id: same, className: tests.unit.flux_words.same}\n"
        "streams:\n  - {from: same, to: last, grouping: {type: NONE}}\n"
    )
    Path("more/last.yaml").write_text("config: {shop.last: 1}\n")
    topology = load(f"includes: [{{file: more/other.yaml, override: {override}}}]\n" + WORDS, "more=1")
    assert topology.config.explicit() == {
        "workers": 3 if override else 2, "shop.currency": "EUR", "shop.more": "1", "shop.last": 1,
    }
    assert list(topology.components) == ["words", "same", "count", "last"]
    assert topology["same"].executors == (1 if override else 2)
    assert read_flux("t.yaml", ["more=1"]).name == ("other" if override else "words")


@pytest.mark.parametrize(
    ("include", "said"),
    [
        ("{file: other.yaml}", "other.yaml:1:19: 't.yaml' includes itself"),
        ("{file: no.yaml}", "t.yaml:1:19: there is no file 'no.yaml'"),
        ("{file: other.yaml, resource: true}", "t.yaml:1:41: resource is true, but there is no jar; name a file"),
        ("{file: 5}", "t.yaml:1:19: include: file is 5; expected `str`, got `int`"),
        ("{}", "t.yaml:1:12: include: file is missing"),
        ("{file: bad.yaml}", "bad.yaml:2:1: found character '\\t' that cannot start any token"),
        ("{file: wrong.yaml}", "wrong.yaml:1:9: bolt 'x': className is missing"),
    ],
)
def test_a_mistake_of_an_include(include: str, said: str) -> None:
    Path("other.yaml").write_text("includes: [{file: t.yaml}]\n")
    Path("bad.yaml").write_text("a:\n\tb")
    Path("wrong.yaml").write_text("bolts: [{id: x}]\n")
    assert said in refusal(f"includes: [{include}]\n{WORDS}")


SOURCE = """\
config: {shop.spouts: 2, topology.workers: 3}
components: [{id: a, className: builtins.str, constructorArgs: [words]}]
topologySource:
  className: tests.unit.flux_words.Source
  constructorArgs: [{ref: a}]
"""


def test_a_topology_that_python_makes() -> None:
    topology = load(SOURCE)
    assert topology["words"].executors == 2
    assert topology.config.workers == 3
    assert refusal(SOURCE + "  methodName: nothing\n") == [
        "t.yaml:6:15: nothing() returned None; allowed: a Topology"]
    assert refusal(SOURCE + "  methodName: getToplogy\n") == [
        "t.yaml:6:15: topologySource: Source has no 'getToplogy'; did you mean getTopology?"]
    place = f"{flux_words.__file__}, line {where('config[')}"
    assert refusal(SOURCE.replace("shop.spouts: 2", "shop.x: 1")) == [
        f"t.yaml:4:3: topologySource: getTopology() raised KeyError: 'shop.spouts' ({place}, in getTopology)"]


def where(text: str) -> int:
    lines = Path(flux_words.__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# As streamparse's Topology.to_flux_dict has its word count, and Storm's own example of programs.
STREAMPARSE = """\
name: shells
spouts:
  - id: sentence
    className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
    parallelism: 1
    constructorArgs: [[streamparse_run, spouts.sentence.SentenceSpout], [word]]
bolts:
  - id: split
    className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
    parallelism: 2
    constructorArgs: [[python3, split.py]]
    configMethods:
      - {name: setDefaultStream, args: [[word]]}
      - {name: setNamedStream, args: [errors, [text]]}
      - {name: setNamedStream, args: [to, true, [text]]}
      - {name: addComponentConfig, args: [topology.tick.tuple.freq.secs, 2]}
streams:
  - {from: sentence, to: split, grouping: {streamId: default, type: FIELDS, args: [word]}}
config: {topology.workers: 1}
"""


def test_programs_of_other_languages_are_found() -> None:
    topology = load(STREAMPARSE)
    assert topology["sentence"].component.command == ["streamparse_run", "spouts.sentence.SentenceSpout"]
    assert {name: (*stream.fields, stream.direct) for name, stream in topology["split"].outputs.items()} == {
        "default": ("word", False), "errors": ("text", False), "to": ("text", True),
    }
    assert topology["split"].config == {"tick_tuple_freq_secs": 2}


def test_a_file_holds_one_topology() -> None:
    with pytest.raises(UsageError, match=r"names a topology in a Flux file, which holds one; write .*topology\.yaml$"):
        load_topology(f"{EXAMPLE}:words", [])


def test_the_schema_is_that_of_the_table() -> None:
    assert schema("flux") == flux_schema(), "run: python -m tests.schemas"
    jsonschema.Draft202012Validator.check_schema(schema("flux"))


CHECK = jsonschema.Draft202012Validator(flux_schema())
WHOLE = [yaml.safe_load(text) for text in (WORDS, SOURCE, STREAMPARSE, EXAMPLE.read_text())]
ODD = st.sampled_from([None, True, -2, 0, 1, 1.5, "x", "SHUFFLE", "", [], ["x"], [1], {}, {"ref": "x"}, {"id": "x"}])
KEYS = st.sampled_from([
    "id", "name", "className", "args", "ref", "value", "type", "file", "override", "includes", "parallelism", "cpuLoad",
    "streams", "factory", "customClass", "x", "methodName", "config", "numTasks", "streamId",
])


def parts_of(document: Any) -> Iterator[Any]:
    """Every mapping and list in a document."""
    if isinstance(document, dict | list):
        yield document
        for each in list(document.values()) if isinstance(document, dict) else document:
            yield from parts_of(each)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_the_schema_refuses_is_refused(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(0, 2))):
        part = data.draw(st.sampled_from(list(parts_of(document))))
        if isinstance(part, dict):
            key = data.draw(st.sampled_from(sorted(part)) | KEYS if part else KEYS)
            if data.draw(st.booleans()):
                part[key] = copy.deepcopy(data.draw(ODD))
            else:
                part.pop(key, None)
        elif part:
            part[data.draw(st.integers(0, len(part) - 1))] = copy.deepcopy(data.draw(ODD))
    Path("t.yaml").write_text(re.sub(r"\$\{(\w+)\}", "1", yaml.safe_dump(document)))
    refused = None
    try:
        read_flux("t.yaml", [])
    except UsageError as error:
        refused = str(error)
        assert re.match(r"(\d+ mistakes in the topology: )?t\.yaml:\d+:\d+: ", refused)
    wrong = [error.json_path for error in CHECK.iter_errors(yaml.safe_load(Path("t.yaml").read_text()))]
    # What no schema can say: ids that are there twice, files that are not there.
    by_reader = re.search(r"twice|there is no file|includes itself|refers to|no jar|workerHooks", refused or "")
    assert (refused is not None) == bool(wrong) or by_reader, (wrong, refused)
