"""Builds the API reference from docstrings, as HTML, and follows every link in it: `make docs`.

Guarantees: a public class, function or method without a docstring, a warning of pdoc and a link that leads nowhere are
each told in one line, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pdoc
import pdoc.doc
import pdoc.render

import squall
from squall.engine.api.config import SETTINGS

MODULES = ("squall", "squall.connect", "squall.testing")
"""Those that people import from. Their names are defined in others, which have no pages."""
_NO_OTHERS = r"!squall\.(?!(connect|testing)$)"
_HARMLESS = re.compile(r"for squall\.\w+Info\.__init__\.")
"""pdoc looks up the types of a NamedTuple's fields in the module that defines NamedTuple."""


class Page(HTMLParser):
    """The links of a page, and the names that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)


def with_inherited(class_: pdoc.doc.Class) -> list[pdoc.doc.Doc[Any]]:
    """The members of a class for its page. What it inherits from a class of ours stands nowhere else."""
    members = [member for member in class_.members.values() if member.taken_from[0].partition(".")[0] == "squall"]
    if class_.obj is squall.Config:
        for member in members:
            if member.name in SETTINGS:
                # Their texts are data, which `squall config` shows, too.
                setting = SETTINGS[member.name]
                member.docstring = f"{setting.help} (Storm's key: `{setting.storm_key}`)"
    return members


def build(out: Path) -> list[str]:
    """Write the pages; returns what pdoc warns of."""
    for name in MODULES:
        module = importlib.import_module(name)
        # pdoc does not call `__getattr__`, which imports some names on first use.
        vars(module).update({name: getattr(module, name) for name in getattr(module, "__all__", ())})
    pdoc.doc.Class.own_members = property(with_inherited)
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text=f"Squall {squall.__version__}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(*MODULES, _NO_OTHERS, output_directory=out)
    return [f"pdoc warns: {warning.message}" for warning in caught if not _HARMLESS.search(str(warning.message))]


def undocumented() -> list[str]:
    """Public classes, functions and attributes without a docstring."""
    found: list[str] = []
    for module_name in MODULES:
        members = pdoc.doc.Module.from_name(module_name).own_members
        classes = [member for member in members if isinstance(member, pdoc.doc.Class)]
        functions = [
            member for owned in (members, *(class_.own_members for class_ in classes)) for member in owned
            if isinstance(member, pdoc.doc.Function) and not member.name.startswith("_")
        ]
        attributes = [
            member for owned in (members, *(class_.own_members for class_ in classes)) for member in owned
            if isinstance(member, pdoc.doc.Variable) and not member.name.startswith("_")
        ]
        documented = (*classes, *functions, *attributes)
        found += [f"{member.fullname} has no docstring" for member in documented if not member.docstring]
    return found


def broken_links(out: Path) -> list[str]:
    """Links to pages or names that are not there. What is on other sites is not looked at."""
    pages = {path.resolve(): Page(path.read_text()) for path in out.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target not in pages:
                found.append(f"{path.relative_to(out.resolve())} links to {link}: there is no such page")
            elif unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{path.relative_to(out.resolve())} links to {link}: there is no such name")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the API reference.")
    parser.add_argument("out", type=Path, nargs="?", default=Path("build/docs"), help="directory (build/docs)")
    out: Path = parser.parse_args().out
    mistakes = [*build(out), *undocumented(), *broken_links(out)]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    if mistakes:
        return 1
    print(f"API reference: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
