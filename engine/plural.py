"""Counts in sentences, and where there is little room."""

from __future__ import annotations


def plural(count: int, noun: str, nouns: str = "") -> str:
    """"1 dead letter", "1,200 dead letters"; `nouns` where an s does not make it."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def short(number: float) -> str:
    """"1.2 G" for 1,234,567,890; whole below 1,000."""
    power = (len(f"{abs(number):.0f}") - 1) // 3
    return f"{number / 1000**power:.1f} {' kMGTPE'[power]}" if power else f"{number:.0f}"
