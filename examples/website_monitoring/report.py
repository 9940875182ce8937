"""Makes the daily report of a website with Spark: Parquet, and a page with plots that needs nothing else.

    python examples/website_monitoring/report.py build/web

reads what monitor.py wrote and what `squall prepare` put into quarantine, and writes daily (a row for each day and URL)
and index.html in build/web/report.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 190, 70, 20, 8, 24
WINDOW_MINUTES = 5
MIN_REQUESTS = 20
"""Of fewer in a window, as at night, shares of errors and latencies say nothing and are not shown."""
SHOWN_URLS = 12
SHOWN_ALARMS = 50
SHOWN_CHARS = 110
PLOTS = (
    ("Requests in five minutes", "requests", "", "#2563eb", ("error_ratio", "p99_ms")),
    ("Errors of all requests", "errors", " %", "#b45309", ("error_ratio",)),
    ("p99 of the slowest URL", "p99", " ms", "#059669", ("p99_ms",)),
)
"""Title, column, unit, colour, and the kinds of alarms that are marked."""
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1f2937; max-width: 960px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #e5e7eb; vertical-align: top }
th:first-child, td:first-child, td.text, th.text { text-align: left }
td.raw { font: 12px/1.6 monospace; text-align: left; overflow-wrap: anywhere }
h2 { margin-top: 2.5rem; border-top: 2px solid #1f2937; padding-top: .5rem } h3 { margin: 1rem 0 .25rem }
.bad { color: #b91c1c; font-weight: 600 } .mark { background: #fecaca; padding: 0 .6em; margin-right: .3em }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #6b7280 }
"""


def final(written: DataFrame, *key: str) -> DataFrame:
    """Of all rows with one key, that with the most requests: monitor.py emits a window whenever it has changed."""
    from pyspark.sql import functions as f

    rest = [name for name in written.columns if name not in (*key, "requests")]
    last = written.groupBy(*key).agg(f.max(f.struct("requests", *rest)).alias("last"))
    return last.select(*key, "last.*")


def daily(windows: DataFrame, alarms: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    day = f.substring("window", 1, 10).alias("day")
    enough = f.col("requests") >= MIN_REQUESTS
    figures = windows.groupBy(day, "url").agg(
        f.sum("requests").alias("requests"), f.sum("errors").alias("errors"), f.sum("bytes").alias("bytes"),
        (f.sum("errors") / f.sum("requests")).alias("error_ratio"), f.median("p50_ms").alias("usual_p50_ms"),
        f.max(f.when(enough, f.col("p99_ms"))).alias("worst_p99_ms"),
    )
    raised = alarms.where("raised").groupBy(day, "url").agg(f.count("*").alias("alarms"))
    return figures.join(raised, ["day", "url"], "left").fillna(0, ["alarms"]).orderBy("day", f.desc("requests"), "url")


def report(spark: SparkSession, base: Path) -> Path:
    """Write both; the path of the page."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    windows = final(spark.read.parquet(str(base / "windows")), "url", "window").persist()
    alarms = final(_alarms(spark, base), "url", "window", "kind").where("raised").persist()
    try:
        daily(windows, alarms).coalesce(1).write.mode("overwrite").parquet(str(base / "report/daily"))
        days = spark.read.parquet(str(base / "report/daily"))
        # What the page shows is small, whatever the logs: windows of a day, and the first few URLs and alarms.
        share = f.when(f.sum("requests") >= MIN_REQUESTS, 100 * f.sum("errors") / f.sum("requests"))
        by_window = windows.groupBy("window").agg(
            f.sum("requests").alias("requests"), share.alias("errors"),
            f.max(f.when(f.col("requests") >= MIN_REQUESTS, f.col("p99_ms"))).alias("p99"),
        ).orderBy("window").collect()
        rows = days.orderBy("day", f.desc("requests"), "url").collect()
        marks = alarms.select("window", "kind").distinct().orderBy("window").collect()
        number = f.row_number().over(Window.partitionBy(f.substring("window", 1, 10)).orderBy("window", "url", "kind"))
        raised = alarms.withColumn("number", number).where(f.col("number") <= SHOWN_ALARMS).orderBy("window", "number")
        text = html_page(rows, by_window, marks, raised.collect(), _quarantine(spark, base))
    finally:
        windows.unpersist()
        alarms.unpersist()
    page = base / "report/index.html"
    temporary = page.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, page)
    return page


def _quarantine(spark: SparkSession, base: Path) -> list[Any]:
    """The reasons, the most frequent first, with the number of lines and the first of them."""
    from pyspark.sql import functions as f

    if not any((base / "feed/quarantine").glob("*.parquet")):
        return []
    lines = spark.read.parquet(str(base / "feed/quarantine"))
    first = f.min(f.struct("path", "line_no", "raw")).alias("first")
    return lines.groupBy("reason").agg(f.count("*").alias("lines"), first).orderBy(f.desc("lines"), "reason").collect()


def _alarms(spark: SparkSession, base: Path) -> DataFrame:
    """A good day has no alarm, and then there is no file."""
    if any((base / "alarms").glob("*.parquet")):
        return spark.read.parquet(str(base / "alarms"))
    return spark.createDataFrame(
        [], "url string, window string, kind string, requests bigint, value double, raised boolean"
    )


def html_page(
    rows: Sequence[Any], by_window: Sequence[Any], marks: Sequence[Any], raised: Sequence[Any],
    quarantine: Sequence[Any],
) -> str:
    days = sorted({row.day for row in rows})
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>Website report</title>']
    parts.append(f"<style>{STYLE}</style><h1>Website report, {escape(' to '.join(sorted({days[0], days[-1]})))}</h1>")
    parts.append(_summary(days, rows) + _quarantine_table(quarantine))
    # One scale for all days: what is large in one plot is large in the others.
    tops = {name: max((row[name] or 0 for row in by_window), default=0) for _, name, *_ in PLOTS}
    for day in days:
        of_day = [row for row in rows if row.day == day]
        windows = [row for row in by_window if row.window.startswith(day)]
        parts.append(f'<h2 id="{escape(day)}">{escape(day)}</h2><p>{_totals(of_day)}. <span class="mark"></span> marks')
        parts.append(f"an alarm. Shares and latencies of fewer than {MIN_REQUESTS} requests are left out.</p>")
        for title, name, unit, colour, kinds in PLOTS:
            points = [(_minute(row.window), float(row[name])) for row in windows if row[name] is not None]
            alarms = sorted({_minute(mark.window) for mark in marks if mark.window[:10] == day and mark.kind in kinds})
            parts.append(f"<h3>{title}</h3>" + plot(points, axis(tops[name]), alarms, unit, colour))
        shown = [row for row in raised if row.window.startswith(day)]
        parts.append(_alarm_list(shown, sum(row.alarms for row in of_day)) + _urls(of_day))
    return "\n".join(parts) + "</html>\n"


def _minute(window: str) -> int:
    return int(window[11:13]) * 60 + int(window[14:16])


def _totals(rows: Sequence[Any]) -> str:
    requests, errors, alarms = (sum(row[name] for row in rows) for name in ("requests", "errors", "alarms"))
    return f"{requests:,} requests, {errors:,} errors ({errors / requests:.2%}), {_counted(alarms, 'alarm')}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _table(head: Sequence[str], texts: Sequence[str], rows: Sequence[str]) -> str:
    """`texts`: the columns that are no numbers."""
    names = "".join(f'<th class="text">{name}</th>' if name in texts else f"<th>{name}</th>" for name in head)
    return f"<table><tr>{names}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _summary(days: Sequence[str], rows: Sequence[Any]) -> str:
    cells = []
    for day in days:
        of_day = [row for row in rows if row.day == day]
        requests, errors, alarms = (sum(row[name] for row in of_day) for name in ("requests", "errors", "alarms"))
        slowest = max((row for row in of_day if row.worst_p99_ms is not None), key=_slowness, default=None)
        slow = f"{slowest.worst_p99_ms:,} ms ({escape(slowest.url[:40])})" if slowest else "-"
        urls = ", ".join(row.url for row in of_day if row.alarms)
        cells.append(
            f'<td><a href="#{escape(day)}">{escape(day)}</a></td><td>{requests:,}</td><td>{errors:,}</td>'
            f"<td>{errors / requests:.2%}</td><td>{slow}</td><td{_bad(alarms)}>{alarms}</td>"
            f'<td class="text">{escape(urls[:80])}</td>'
        )
    head = ("day", "requests", "errors", "error share", "worst p99", "alarms", "alarms of")
    return f"<p>{_totals(rows)}.</p>" + _table(head, ("alarms of",), cells)


def _slowness(row: Any) -> int:
    return row.worst_p99_ms


def _bad(alarms: int) -> str:
    return ' class="bad"' if alarms else ""


def _quarantine_table(reasons: Sequence[Any]) -> str:
    total = sum(row.lines for row in reasons)
    cells = []
    for row in reasons:
        raw = bytes(row.first.raw or b"").decode("utf-8", "replace")[:SHOWN_CHARS]
        place = f"{row.first.path}:{row.first.line_no}"
        cells.append(
            f'<td>{escape(row.reason)}</td><td>{row.lines:,}</td><td class="text">{escape(place)}</td>'
            f'<td class="raw">{escape(raw)}</td>'
        )
    head = ("reason", "lines", "the first", "its text")
    table = _table(head, head[2:], cells) if cells else ""
    return f"<h3>Quarantine</h3><p>Not in this report: {_counted(total, 'line')} of the logs.</p>{table}"


def axis(top: float) -> list[float]:
    """Round numbers from 0 to `top` or a little more, with at most five steps."""
    power = 10.0 ** math.floor(math.log10(top / 5)) if top else 0.2
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= top * (1 - 1e-9))
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)] if top else [0.0, 1.0]


def plot(
    points: Sequence[tuple[int, float]], ticks: Sequence[float], alarms: Sequence[int], unit: str, colour: str
) -> str:
    """A line over the minutes of a day, as SVG, before the windows with alarms. A gap in time is a gap in the line."""
    step, height = (WIDTH - LEFT - RIGHT) / 1440, HEIGHT - BOTTOM - TOP
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for minute in alarms:
        place = f'x="{LEFT + minute * step:.1f}" y="{TOP}" width="{WINDOW_MINUTES * step + 0.5:.1f}" height="{height}"'
        parts.append(f'<rect {place} fill="#fecaca"/>')
    for value in ticks:
        y = TOP + height * (1 - value / ticks[-1])
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.10g}{unit}</text>')
    for hour in range(0, 25, 3):
        place = f'x="{LEFT + hour * 60 * step:.1f}" y="{HEIGHT - 6}"'
        parts.append(f'<text {place} text-anchor="middle">{hour}:00</text>')
    path, before = "", -WINDOW_MINUTES - 1
    for minute, value in points:
        # What stands for five minutes is drawn in their middle; alone, it is a dot.
        x, y = LEFT + (minute + WINDOW_MINUTES / 2) * step, TOP + height * (1 - value / ticks[-1])
        path += f"L{x:.1f} {y:.1f}" if minute - before <= WINDOW_MINUTES else f"M{x:.1f} {y:.1f}h0"
        before = minute
    drawn = f'd="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="round"'
    return "".join(parts) + f"<path {drawn}/></svg>"


def _urls(rows: Sequence[Any]) -> str:
    cells = []
    for row in rows[:SHOWN_URLS]:
        worst = "-" if row.worst_p99_ms is None else f"{row.worst_p99_ms:,} ms"
        cells.append(
            f"<td>{escape(row.url[:80])}</td><td>{row.requests:,}</td><td>{row.error_ratio:.2%}</td>"
            f"<td>{row.usual_p50_ms:,.0f} ms</td><td>{worst}</td><td{_bad(row.alarms)}>{row.alarms}</td>"
        )
    more = f"<p>and {len(rows) - SHOWN_URLS:,} more URLs in report/daily</p>" if len(rows) > SHOWN_URLS else ""
    head = ("URL", "requests", "error share", "usual p50", "worst p99", "alarms")
    return f"<h3>URLs</h3>{_table(head, (), cells)}{more}"


def _alarm_list(alarms: Sequence[Any], total: int) -> str:
    if not alarms:
        return "<h3>Alarms</h3><p>none</p>"
    said = {"error_ratio": lambda value: f"{value:.0%} errors", "p99_ms": lambda value: f"p99 of {value:,.0f} ms"}
    cells = [
        f'<td>{escape(row.window[11:])}</td><td class="text">{escape(row.url[:80])}</td>'
        f'<td class="text">{said[row.kind](row.value)}</td><td>{row.requests:,}</td>'
        for row in alarms
    ]
    more = f"<p>and {total - len(alarms):,} more in alarms</p>" if total > len(alarms) else ""
    head = ("from", "URL", "what", "requests")
    return f"<h3>Alarms</h3>{_table(head, ('URL', 'what'), cells)}{more}"


if __name__ == "__main__":
    from arguments import Arguments, base_with

    parser = Arguments(description="Make the daily report of a website, where monitor.py wrote windows and alarms.")
    base = base_with(parser, "monitor.py", "windows")
    from spark_session import session

    print(f"report      {report(session('report'), base)}")
