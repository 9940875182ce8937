"""Every link of a page in Markdown to a file or a heading of this repository leads somewhere."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True
)
PAGES = sorted({ROOT / line for line in _LISTED.stdout.splitlines() if (ROOT / line).exists()})
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


def test_broken_links_are_found() -> None:
    page = ROOT / "README.md"
    text = "[a](docs/none.md) [b](docs/guarantees.md#duplicates) `[c](x.md)` [`d`](docs/glossary.md#no) [e](https://e)"
    links = links_of(text)
    assert links == ["docs/none.md", "docs/guarantees.md#duplicates", "docs/glossary.md#no", "https://e"]
    assert [mistake(page, link) for link in links] == [
        "there is no such file", "", "docs/glossary.md has no heading of that name", "",
    ]
    assert mistake(page, "../x") == "it leaves the repository"
