"""Shows the report of `squall chaos` as one HTML page: a timeline, the verdict, the command that repeats it.

Guarantees: the page needs no script, no other file and no network (its own policy forbids them). Every text in it is
escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from squall.chaos.text import bound_text, fault_text
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural

_WIDTH, _LEFT, _RIGHT = 1000, 130, 20
_ROW, _GRAPH, _LEGEND = 26, 110, 28
_MARK = 5.0
"""Half the width of the mark of a fault that was over at once."""
_MAX_PICTURES = 10
_TICKS = 10
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1040px; padding: 0 1em; color: #1d2433 }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
.good { color: #14713d } .bad { color: #b3261e }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25em .7em; vertical-align: top }
th { border-bottom: 2px solid #c9d0dc } td { border-bottom: 1px solid #e6e9ef } td.n { text-align: right }
code { background: #f1f3f7; padding: .15em .35em; border-radius: 3px; overflow-wrap: anywhere }
svg { width: 100%; height: auto; background: #fafbfc; border: 1px solid #e6e9ef }
svg text { font: 11px system-ui, sans-serif; fill: #4a5468 }
.fault { fill: #c25700 } .lasting { fill: #f6b26b } .missed { fill: none; stroke: #7b8494; stroke-width: 1.5 }
.death { stroke: #b3261e; stroke-width: 2 }
.away { fill: #f3c9c6 } .graph { fill: none; stroke: #2457a6; stroke-width: 1.5 } .pending { stroke: #7a3fa0 }
.axis { stroke: #c9d0dc; stroke-width: 1 } .healed { stroke: #14713d; stroke-width: 1.5; stroke-dasharray: 4 3 }
"""


def page(document: Mapping[str, Any]) -> str:
    """Make the page. `document`: the output of `squall chaos --json`."""
    seeds = document["seeds"]
    good = document["good"]
    shown = [result for result in seeds if not result["good"]][:_MAX_PICTURES] or seeds[:1]
    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">',
        f"<title>squall chaos: {_text(document['parameters']['file'])}</title><style>{_STYLE}</style></head><body>",
        f"<h1>squall chaos: {_text(document['parameters']['file'])}</h1>",
        f'<p class="{"good" if good else "bad"}"><strong>{_headline(document)}</strong></p>',
        f"<p>To repeat it: <code>{_text(document['command'])}</code></p>",
    ]  # fmt: skip
    if "command_smallest" in document:
        parts.append(f"<p>The fewest faults that fail: <code>{_text(document['command_smallest'])}</code></p>")
    for result in shown:
        parts += [f"<h2>Seed {result['seed']}</h2>", _picture(result), _problems(result)]
    parts += ["<h2>Verdict</h2>", _verdicts(seeds), "<h2>What was compared</h2>", _compared(document)]
    parts += ["<h2>Parameters</h2>", _table(("parameter", "value"), document["parameters"].items()), "</body></html>"]
    return "\n".join(parts) + "\n"


def _text(value: object) -> str:
    return escape(plain(value))


def _headline(document: Mapping[str, Any]) -> str:
    count = len(document["seeds"])
    bad = sum(not result["good"] for result in document["seeds"])
    if bad:
        return f"{bad} of {count} seeds failed"
    return f"{plural(count, 'seed')}, nothing lost{bound_text(document)}"


def _table(head: Sequence[str], rows: Any) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = [f"<table><tr>{cells}</tr>"]
    for row in rows:
        shown = (f'<td class="{"n" if isinstance(cell, int) else ""}">{_text(cell)}</td>' for cell in row)
        lines.append(f"<tr>{''.join(shown)}</tr>")
    return "\n".join([*lines, "</table>"])


def _verdicts(seeds: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "seed", "verdict", "messages", "ok", "recovered", "duplicates", "dead letters", "faults", "deaths",
        "acked/s between faults", "over all", "found",
    )  # fmt: skip
    return _table(head, map(_verdict_row, seeds))


def _verdict_row(result: Mapping[str, Any]) -> tuple[object, ...]:
    verdict, run = result["verdict"], result["run"]
    said = "good" if result["good"] else "failed"
    counts = [verdict[name] for name in ("messages", "ok", "recovered", "duplicates", "dead_letters")]
    counts += [len(run["injected"]), len(run["deaths"])]
    flow = [round(run["flow"]["between"]) if run["flow"]["between_secs"] else "", round(run["flow"]["overall"])]
    return (result["seed"], said, *counts, *flow, "; ".join(result["problems"]))


def _compared(document: Mapping[str, Any]) -> str:
    rows = list(document["expected"]["asked"].items())
    limits = dict.fromkeys(limit for result in document["seeds"] for limit in result["verdict"]["not_shown"])
    items = "".join(f"<li>{_text(limit)}</li>" for limit in limits) or "<li>nothing more is known</li>"
    return f"{_table(('way into a sink', 'what is compared'), rows)}<p>Not shown:</p><ul>{items}</ul>"


def _problems(result: Mapping[str, Any]) -> str:
    rows = [(one["kind"], one["message"], one["what"]) for one in result["verdict"]["findings"]]
    parts = [f'<p class="bad">{_text(problem)}</p>' for problem in result["problems"]]
    if result.get("smallest"):
        numbers = ", ".join(map(str, result["smallest"]))
        parts.append(f"<p>It still fails with the faults {_text(numbers)} alone.</p>")
    return "\n".join(parts + ([_table(("what", "message", "how"), rows)] if rows else []))


# ---- the picture ----


def _picture(result: Mapping[str, Any]) -> str:
    run = result["run"]
    targets = [target for one in run["injected"] for target in _rows_of(one)]
    rows = sorted({*targets, *(death["worker"] for death in run["deaths"])})
    whole_secs = max([run["secs"], 0.001, *(sample["at_secs"] for sample in run["samples"])])
    height = _LEGEND + len(rows) * _ROW + 2 * _GRAPH + 40

    def x(secs: float) -> float:
        share: float = min(max(secs, 0.0), whole_secs) / whole_secs
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img"><title>Timeline of seed {result["seed"]}</title>']
    parts += _legend()
    parts += _axis(whole_secs, height, x)
    parts.append(_healed(x(run["healed_secs"]), _LEGEND, height - 24))
    for name in rows:
        parts.append(f'<text x="6" y="{_top(rows, name) + 18}">{_text(plain(name, 24))}</text>')
    parts += _deaths(run["deaths"], rows, x)
    parts += _faults(run["injected"], rows, x)
    top = _LEGEND + len(rows) * _ROW + 6
    parts += _graph("acked/s", "graph", list(_rates(run["samples"])), top, x)
    pending = [(sample["at_secs"], sample["pending"]) for sample in run["samples"]]
    parts += _graph("pending", "graph pending", pending, top + _GRAPH, x)
    return "\n".join([*parts, "</svg>"])


def _top(rows: Sequence[str], name: str) -> int:
    return _LEGEND + rows.index(name) * _ROW


def _legend() -> Iterator[str]:
    """The signs of the picture, as they are drawn in it, with their names."""
    signs = (
        ("fault, over at once", _mark("fault", 12, 0)), ("fault, lasting", _bar("lasting", 0, 24, 0)),
        ("fault missed: its target was away", _mark("missed", 12, 0)), ("death", _cross(12, 0)),
        ("until at work again", _away(0, 24, 0)), ("all faults ended", _healed(12, 3, _ROW - 3)),
    )  # fmt: skip
    at = 6
    for name, sign in signs:
        yield f'<g transform="translate({at} 0)">{sign}</g><text x="{at + 30}" y="17">{name}</text>'
        at += 48 + 6 * len(name)


def _axis(whole_secs: float, height: int, x: Any) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        secs = whole_secs * tick / _TICKS
        yield f'<line class="axis" x1="{x(secs)}" x2="{x(secs)}" y1="{_LEGEND}" y2="{height - 24}"/>'
        yield f'<text x="{x(secs)}" y="{height - 8}" text-anchor="middle">{secs:.1f} s</text>'


def _deaths(deaths: Sequence[Mapping[str, Any]], rows: Sequence[str], x: Any) -> Iterator[str]:
    for death in deaths:
        top = _top(rows, death["worker"])
        at, back = death["at_secs"], death["at_secs"] + (death["working_after_secs"] or 0.0)
        what = f"died at {at:.3f} s: {death['reason']}, {death['claimed_by'] or 'by no fault'}"
        yield _away(x(at), x(back), top)
        yield _cross(x(at), top, what)


def _rows_of(fault: Mapping[str, Any]) -> Sequence[str]:
    """The rows of the picture that show a fault; one of the whole cluster has a row of its own."""
    return fault.get("targets") or (fault["kind"],)


def _faults(injected: Sequence[Mapping[str, Any]], rows: Sequence[str], x: Any) -> Iterator[str]:
    for number, one in enumerate(injected, 1):
        began, ended = one["began_secs"], one["ended_secs"]
        what = f"{number}: {fault_text(one)} at {began:.3f} s {one['missed']}"
        for target in _rows_of(one):
            top = _top(rows, target)
            if one["missed"]:
                yield _mark("missed", x(began), top, what)
            elif ended > began:
                yield _bar("lasting", x(began), x(ended), top, what)
            else:
                yield _mark("fault", x(began), top, what)


# ---- its signs: at a time (or two), in the row that begins at `top` ----


def _bar(kind: str, begin: float, end: float, top: int, what: str = "") -> str:
    shape = f'x="{begin}" y="{top + 9}" width="{max(3.0, end - begin):.1f}" height="{_ROW - 18}"'
    return f'<rect class="{kind}" {shape}>{_hint(what)}</rect>'


def _mark(kind: str, at: float, top: int, what: str = "") -> str:
    """A diamond, whose middle is the moment; above the cross of the death that may follow at once."""
    middle = top + 8
    corners = ((at - _MARK, middle), (at, middle - _MARK), (at + _MARK, middle), (at, middle + _MARK))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon class="{kind}" points="{points}">{_hint(what)}</polygon>'


def _cross(at: float, top: int, what: str = "") -> str:
    return f'<path class="death" d="M{at - 4} {top + 12}l8 11m-8 0l8 -11">{_hint(what)}</path>'


def _away(begin: float, end: float, top: int) -> str:
    width = max(1.0, end - begin)
    return f'<rect class="away" x="{begin}" y="{top + 3}" width="{width:.1f}" height="{_ROW - 6}"/>'


def _healed(at: float, top: int, bottom: int) -> str:
    return f'<line class="healed" x1="{at}" x2="{at}" y1="{top}" y2="{bottom}">{_hint("all faults ended")}</line>'


def _hint(what: str) -> str:
    """What is shown where the mouse rests."""
    return f"<title>{_text(what)}</title>" if what else ""


def _rates(samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float]]:
    for before, after in pairwise(samples):
        secs = after["at_secs"] - before["at_secs"]
        if secs > 0:
            yield after["at_secs"], max(0.0, (after["acked"] - before["acked"]) / secs)


def _graph(name: str, kind: str, points: Sequence[tuple[float, float]], top: int, x: Any) -> Iterator[str]:
    most = max((value for _, value in points), default=0.0)
    bottom, room = top + _GRAPH - 10, _GRAPH - 26
    path = " ".join(f"{x(secs)},{bottom - room * value / (most or 1):.1f}" for secs, value in points)
    yield f'<text x="6" y="{top + 20}">{name}</text><text x="6" y="{top + 36}">up to {most:,.0f}</text>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    yield f'<polyline class="{kind}" points="{path}"/>'
