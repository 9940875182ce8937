"""Writes access logs of a website that has good days, two incidents and bad clients.

    python examples/website_monitoring/make_logs.py build/logs --days 2 --requests 50000 --seed 7

One file a day in Common Log Format, with the microseconds of the answer at the end (Apache: `%h %l %u %t "%r" %>s %b
%D`). The same arguments give the same bytes. One line in a hundred is none: cut off, not UTF-8, with a wrong date or
status, or no request at all. On the first day the cart fails for half an hour; on the last the search is slow for an
hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

FIRST_DAY = datetime(2026, 11, 20, tzinfo=UTC)
#: URL, its share of the requests, and the milliseconds that half of its answers take.
PAGES = (
    ("/", 30, 40), ("/products", 22, 60), ("/products/tea", 12, 55), ("/search", 12, 120), ("/cart", 10, 80),
    ("/checkout", 5, 200), ("/api/stock", 6, 25), ("/static/site.css", 9, 4),
)
AGENTS_PATHS = ("/wp-login.php", "/.env", "/<script>alert(1)</script>", "/%2e%2e/etc/passwd")
MALFORMED_SHARE = 0.01


def requests_of(day: datetime, requests: int, chance: random.Random, first: bool, last: bool) -> Iterator[bytes]:
    """The lines of a day, in order of time: more by day than by night."""
    seconds = sorted(_second_of_day(chance) for _ in range(requests))
    for second in seconds:
        line = _line(day + timedelta(seconds=second), chance, second / 3600, first, last)
        yield _spoilt(line, chance) if chance.random() < MALFORMED_SHARE else line


def _second_of_day(chance: random.Random) -> int:
    return min(86_399, int(chance.triangular(0, 86_400, 54_000)))


def _line(at: datetime, chance: random.Random, hour: float, first: bool, last: bool) -> bytes:
    host = f"{chance.choice((10, 84, 203))}.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
    user = chance.choice(("-", "-", "-", "ana", "liu"))
    if chance.random() < 0.02:
        url, status, millis = chance.choice(AGENTS_PATHS), 404, chance.lognormvariate(1, 0.5)
    else:
        url, _, usual = chance.choices(PAGES, [share for _, share, _ in PAGES])[0]
        status = 500 if chance.random() < 0.004 else chance.choice((200, 200, 200, 200, 304))
        millis = usual * chance.lognormvariate(0, 0.6)
        if url == "/cart" and first and 14 <= hour < 14.5:
            status = chance.choice((200, 503, 503))
        if url == "/search" and last and 10 <= hour < 11:
            millis *= 15
    method = "POST" if url in ("/cart", "/checkout") else "GET"
    query = f"?q={chance.choice(('tea', 'mug', 'a+b'))}" if url == "/search" else ""
    size = "-" if status == 304 else str(chance.randrange(200, 40_000))
    when = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    line = f'{host} - {user} [{when}] "{method} {url}{query} HTTP/1.1" {status} {size} {round(millis * 1000)}'
    return line.encode()


def _spoilt(line: bytes, chance: random.Random) -> bytes:
    return chance.choice(
        (
            line[: chance.randrange(1, len(line) - 12)],
            line.replace(b"GET", b"\xff\xfe\x9d"),
            line.replace(b"/Nov/", b"/Nev/"),
            line.replace(b"HTTP/1.1\" ", b"HTTP/1.1\" 9"),
            b"",
            b'84.1.2.3 - - [20/Nov/2026:10:00:00 +0000] "\\x16\\x03\\x01" 400 226 90',
            line.replace(b"HTTP", b'"><b>HTTP'),
        )
    )


def write_logs(folder: Path, days: int, requests: int, seed: int) -> int:
    """Write `requests` lines a day; the number of all lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(days):
        day = FIRST_DAY + timedelta(days=number)
        chance = random.Random(f"{seed} {number}")
        lines = requests_of(day, requests, chance, number == 0, number == days - 1)
        (folder / f"access-{day:%Y-%m-%d}.log").write_bytes(b"".join(line + b"\n" for line in lines))
    return days * requests


if __name__ == "__main__":
    from arguments import Arguments, from_one, whole

    parser = Arguments(description="Write access logs of a made-up website.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=from_one, default=2)
    parser.add_argument("--requests", type=from_one, default=50_000, help="a day (default 50,000)")
    parser.add_argument("--seed", type=whole, default=7)
    options = parser.parse_args()
    try:
        lines = write_logs(options.folder, options.days, options.requests, options.seed)
    except OSError as error:
        parser.error(f"{error.filename} cannot be written: {error.strerror}")
    print(f"{lines:,} lines in {options.days} files in {options.folder}")
