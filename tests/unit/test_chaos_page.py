"""The HTML report of `squall chaos`: whole, by itself, and harmless whatever the texts are."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from squall.chaos.page import page

HOSTILE = '<script>alert("x")</script>&\x1b[31m"\' onload=\u202e'


def document(text: str, good: bool) -> dict[str, Any]:
    injected = [
        {
            "kind": "kill", "targets": [text], "when": {"after_secs": 1.0}, "began_secs": 1.0, "ended_secs": 1.0,
            "missed": "",
        },
        {
            "kind": "stop", "targets": ["node-1:6700"], "when": {"after_secs": 2.0}, "for_secs": 1.0,
            "began_secs": 2.0, "ended_secs": 3.0, "missed": text,
        },
    ]  # fmt: skip
    deaths = [
        {
            "worker": text, "at_secs": 1.001, "reason": text, "claimed_by": "kill", "ready_after_secs": 0.1,
            "working_after_secs": None,
        },
    ]  # fmt: skip
    samples = [{"at_secs": 0.2 * n, "acked": 10 * n, "pending": n % 3} for n in range(20)]
    findings = [{"kind": "lost", "message": text, "what": text}]
    verdict = {
        "messages": 10, "ok": 9, "recovered": 1, "duplicates": 2, "dead_letters": 0, "counts": {"lost": 1},
        "findings": findings, "asked": {text: "values"}, "not_shown": [text], "torn_lines": 0, "good": good,
    }  # fmt: skip
    run = {"injected": injected, "deaths": deaths, "samples": samples, "secs": 4.0, "healed_secs": 3.0, "drained": True}
    run["flow"] = {"between": 50.0, "between_secs": 1.0, "overall": 45.0}
    seed = {
        "seed": 7, "good": good, "problems": [] if good else [text], "faults": injected, "logs": text,
        "verdict": verdict, "run": run, "smallest": [1],
    }  # fmt: skip
    return {
        "parameters": {"file": text, "seed": "7"}, "command": text, "command_smallest": text, "seeds": [seed],
        "good": good, "bound": 1.0, "expected": {"asked": {text: "values"}, "messages": 10, "secs": 1.0},
    }  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_hostile_text_is_shown_as_text() -> None:
    text = page(document(HOSTILE, good=False))
    tags = Tags()
    tags.feed(text)
    harmless = Tags()
    harmless.feed(page(document("node-1:6700", good=False)))
    assert {tag for tag, _ in tags.seen} == {tag for tag, _ in harmless.seen}
    assert not any(name.startswith("on") for _, attributes in tags.seen for name in attributes)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;" in text


def test_it_needs_nothing_else() -> None:
    text = page(document("node-1:6700", good=True))
    tags = Tags()
    tags.feed(text)
    assert {tag for tag, _ in tags.seen}.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not re.search(r"(\bsrc=|href=|url\()", text)
    assert "default-src 'none'" in text


def test_the_picture_is_whole() -> None:
    text = page(document("node-1:6700", good=True))
    (svg,) = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    kinds = [element.get("class") for element in ElementTree.fromstring(svg).iter()]
    for kind in ("fault", "missed", "death", "away", "graph", "graph pending", "axis"):
        assert kind in kinds, kind


def test_what_is_over_at_once_is_a_mark_and_what_lasts_is_a_bar() -> None:
    shown = document("node-1:6700", good=True)
    lasts = {"kind": "stop", "targets": ["a"], "for_secs": 1.0, "began_secs": 1.0, "ended_secs": 2.0, "missed": ""}
    shown["seeds"][0]["run"]["injected"].append(lasts)
    (svg,) = re.findall(r"<svg.*?</svg>", page(shown), re.DOTALL)
    drawn = [element for element in ElementTree.fromstring(svg) if element.tag in ("polygon", "rect")]
    signs = {(element.tag, element.get("class")) for element in drawn}
    assert signs == {("polygon", "fault"), ("polygon", "missed"), ("rect", "lasting"), ("rect", "away")}
    (bar,) = (element for element in drawn if element.get("class") == "lasting")
    assert float(bar.get("width", "0")) == pytest.approx(850 / 4, abs=1), "a second of four"


def test_every_sign_is_in_the_legend() -> None:
    (svg,) = re.findall(r"<svg.*?</svg>", page(document("node-1:6700", good=True)), re.DOTALL)
    legend = [element for element in ElementTree.fromstring(svg) if element.tag == "g"]
    signs = {child.get("class") for element in legend for child in element}
    assert signs == {"fault", "lasting", "missed", "death", "away", "healed"}
    assert "fault, over at once" in svg


def test_few_seeds_say_nothing_of_others() -> None:
    few, many = document("node-1:6700", good=True), document("node-1:6700", good=True)
    many["bound"] = 0.01
    assert "of such runs fail" not in page(few)
    assert "less than 1.0% of such runs fail (95 %)" in page(many)


def test_it_says_what_failed() -> None:
    text = page(document("node-1:6700", good=False))
    assert "1 of 1 seeds failed" in text
    assert "It still fails with the faults 1 alone" in text
