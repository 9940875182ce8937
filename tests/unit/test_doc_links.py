"""The documentation names only what there is: links lead somewhere, terms, commands and names exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import squall
from squall import Config, connect, testing
from squall.cli.commands import COMMANDS
from squall.engine.api.config import canonical_name
from tests.unit.source import PRODUCT, ROOT, sources_of
from tests.unit.test_repo_hygiene import repository_files

PAGES = [ROOT / path for path in repository_files() if path.endswith(".md")]
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)(?:\s+\"[^\"]*\")?\)")
_ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")


def links_of(text: str) -> list[str]:
    """Targets of the links of a page, in order, but for those in code."""
    return _LINK.findall(re.sub(r"`[^`\n]*`", lambda code: code[0].replace("(", " "), _FENCED.sub("", text)))


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """Names of a page's headings as GitHub makes them."""
    names: list[str] = []
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", _FENCED.sub("", path.read_text()), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        count = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{count}" if count else name)
    return frozenset(names)


def mistake(page: Path, link: str) -> str:
    """Why the link leads nowhere; "" if it does not."""
    if _ELSEWHERE.match(link):
        return ""
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.is_relative_to(ROOT):
        return "it leaves the repository"
    if not target.exists():
        return "there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors_of(target):
        return f"{target.relative_to(ROOT)} has no heading of that name"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    found = [f"{link}: {why}" for link in links_of(page.read_text()) if (why := mistake(page, link))]
    assert not found, "\n".join(found)


def test_every_page_of_docs_is_linked() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES for link in links_of(page.read_text()) if not _ELSEWHERE.match(link)
    }
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert [str(page.relative_to(ROOT)) for page in pages if page not in linked] == []


GLOSSARY = ROOT / "docs" / "glossary.md"


def terms() -> list[str]:
    rows = re.findall(r"^\| ([a-z][a-z, ]*) \| ", GLOSSARY.read_text(), re.MULTILINE)
    return [term for row in rows if row != "term" for term in row.split(", ")]


def test_each_term_is_used_in_the_code() -> None:
    names = "\n".join(source.text for room in PRODUCT for source in sources_of(room))
    # Names in code taken apart: `AckRing` and `ack_ring` are "ack ring".
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", names).lower()
    assert len(set(terms())) == len(terms()) > 15
    assert [term for term in terms() if not re.search(rf"\b{term}", words)] == []


PAGE = (ROOT / "docs" / "coming-from.md").read_text()
OURS = [line.split(" | ")[-1] for line in PAGE.splitlines() if line.startswith("| ")]
"""The right column of every table."""
SPANS = [span for cell in OURS for span in re.findall(r"`([^`]+)`", cell)]
OF_PYTHON = {"print", "yield", "raise", "None", "tup"}


def known_names() -> set[str]:
    """Public names, and the public members of public classes."""
    public = {name: getattr(package, name) for package in (squall, testing, connect) for name in package.__all__}
    return {*public, *(member for thing in public.values() if isinstance(thing, type) for member in dir(thing))}


def test_commands_are_there() -> None:
    commands = re.findall(r"`squall ([a-z-]+)", PAGE)
    assert len(commands) > 20
    assert set(commands) <= set(COMMANDS)


def test_names_are_there() -> None:
    known = known_names() | OF_PYTHON | set(vars(Config()))
    named = [match[1] for span in SPANS if (match := re.match(r"@?(?:(?:collector|context|tup)\.)?([A-Za-z_]+)", span))]
    named = [name for name in named if name != "squall"]
    assert len(named) > 40
    assert sorted({name for name in named if name not in known and canonical_name(name) is None}) == []
