"""Makes the daily report of a website with Spark: Parquet, and a page with plots that needs nothing else.

    python examples/website_monitoring/report.py build/web

reads what monitor.py wrote, and writes daily (a row for each day and URL) and index.html in build/web/report.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDTH, HEIGHT, LEFT, BOTTOM = 900, 190, 60, 24
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2")
SHOWN_URLS = 12
SHOWN_ALARMS = 100
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1f2937; max-width: 960px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #e5e7eb }
th:first-child, td:first-child, td.text, th.text { text-align: left }
.bad { color: #b91c1c; font-weight: 600 } svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #6b7280 }
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
    figures = windows.groupBy(day, "url").agg(
        f.sum("requests").alias("requests"), f.sum("errors").alias("errors"), f.sum("bytes").alias("bytes"),
        (f.sum("errors") / f.sum("requests")).alias("error_ratio"), f.median("p50_ms").alias("usual_p50_ms"),
        f.max("p99_ms").alias("worst_p99_ms"),
    )
    raised = alarms.where("raised").groupBy(day, "url").agg(f.count("*").alias("alarms"))
    return figures.join(raised, ["day", "url"], "left").fillna(0, ["alarms"]).orderBy("day", f.desc("requests"), "url")


def report(spark: SparkSession, base: Path) -> Path:
    """Write both; the path of the page."""
    from pyspark.sql import functions as f

    windows = final(spark.read.parquet(str(base / "windows")), "url", "window").persist()
    alarms = final(_alarms(spark, base), "url", "window", "kind").persist()
    try:
        daily(windows, alarms).coalesce(1).write.mode("overwrite").parquet(str(base / "report/daily"))
        days = spark.read.parquet(str(base / "report/daily"))
        # What the page shows is small, whatever the logs: windows of a day, and the first few URLs.
        by_window = windows.groupBy("window").agg(
            f.sum("requests").alias("requests"), (100 * f.sum("errors") / f.sum("requests")).alias("errors"),
            f.max("p99_ms").alias("p99"),
        ).orderBy("window").collect()
        rows = days.orderBy("day", f.desc("requests"), "url").collect()
        raised = alarms.where("raised").orderBy("window", "url", "kind").limit(SHOWN_ALARMS + 1).collect()
    finally:
        windows.unpersist()
        alarms.unpersist()
    page = base / "report/index.html"
    temporary = page.with_suffix(".tmp")
    temporary.write_text(html_page(rows, by_window, raised), encoding="utf-8")
    os.replace(temporary, page)
    return page


def _alarms(spark: SparkSession, base: Path) -> DataFrame:
    """A good day has no alarm, and then there is no file."""
    if any((base / "alarms").glob("*.parquet")):
        return spark.read.parquet(str(base / "alarms"))
    return spark.createDataFrame(
        [], "url string, window string, kind string, requests bigint, value double, raised boolean"
    )


def html_page(rows: Sequence[Any], by_window: Sequence[Any], raised: Sequence[Any]) -> str:
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>Website report</title>']
    parts.append(f"<style>{STYLE}</style>")
    for day in sorted({row.day for row in rows}):
        of_day = [row for row in rows if row.day == day]
        windows = [row for row in by_window if row.window.startswith(day)]
        alarms = [row for row in raised if row.window.startswith(day)]
        totals = (f"{sum(row[name] for row in of_day):,} {name}" for name in ("requests", "errors", "alarms"))
        parts.append(f"<h1>{escape(day)}</h1><p>{', '.join(totals)}</p>")
        places = [int(row.window[11:13]) * 60 + int(row.window[14:16]) for row in windows]
        for number, (title, name) in enumerate(
            (("Requests in five minutes", "requests"), ("Errors, %", "errors"), ("Slowest p99 of a URL, ms", "p99"))
        ):
            parts.append(f"<h2>{title}</h2>" + plot(places, [float(row[name]) for row in windows], COLOURS[number]))
        parts.append(_urls(of_day) + _alarm_list(alarms))
    return "\n".join(parts) + "</html>\n"


def plot(minutes: Sequence[int], values: Sequence[float], colour: str) -> str:
    """A line over the minutes of a day, as SVG. A gap in time is a gap in the line."""
    top = max(values, default=0.0) or 1.0
    step = (WIDTH - LEFT) / 1440
    path, before = [], -10
    for minute, value in zip(minutes, values, strict=True):
        x, y = LEFT + minute * step, 8 + (HEIGHT - BOTTOM - 8) * (1 - value / top)
        path.append(f"{'L' if minute - before <= 5 else 'M'}{x:.1f} {y:.1f}")
        before = minute
    lines = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for share in (0, 0.5, 1):
        y = 8 + (HEIGHT - BOTTOM - 8) * (1 - share)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * share:,.4g}</text>')
    for hour in range(0, 24, 3):
        place = f'x="{LEFT + hour * 60 * step:.1f}" y="{HEIGHT - 6}"'
        lines += [f'<text {place} text-anchor="middle">{hour}:00</text>']
    drawn = f'd="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="round"'
    return "".join(lines) + f"<path {drawn}/></svg>"


def _urls(rows: Sequence[Any]) -> str:
    names = ("URL", "requests", "errors", "usual p50, ms", "worst p99, ms", "alarms")
    head = "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    cells = []
    for row in rows[:SHOWN_URLS]:
        bad = ' class="bad"' if row.alarms else ""
        cells.append(
            f"<tr><td>{escape(row.url[:80])}</td><td>{row.requests:,}</td><td>{row.error_ratio:.2%}</td>"
            f"<td>{row.usual_p50_ms:,.0f}</td><td>{row.worst_p99_ms:,}</td><td{bad}>{row.alarms}</td></tr>"
        )
    more = f"<p>and {len(rows) - SHOWN_URLS:,} more URLs in report/daily</p>" if len(rows) > SHOWN_URLS else ""
    return f"<h2>URLs</h2><table>{head}{''.join(cells)}</table>{more}"


def _alarm_list(alarms: Sequence[Any]) -> str:
    if not alarms:
        return "<h2>Alarms</h2><p>none</p>"
    head = '<tr><th>from</th><th class="text">URL</th><th class="text">what</th><th>value</th><th>requests</th></tr>'
    cells = "".join(
        f'<tr><td>{escape(row.window[11:])}</td><td class="text">{escape(row.url[:80])}</td><td class="text">'
        f"{escape(row.kind)}</td><td>{row.value:,.4g}</td><td>{row.requests:,}</td></tr>"
        for row in alarms[:SHOWN_ALARMS]
    )
    return f"<h2>Alarms</h2><table>{head}{cells}</table>"


if __name__ == "__main__":
    from arguments import Arguments, base_with

    parser = Arguments(description="Make the daily report of a website, where monitor.py wrote windows and alarms.")
    base = base_with(parser, "monitor.py", "windows")
    from spark_session import session

    print(f"report      {report(session('report'), base)}")
