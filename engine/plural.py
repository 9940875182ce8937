"""Counts in sentences."""

from __future__ import annotations


def plural(count: int, noun: str, nouns: str = "") -> str:
    """"1 dead letter", "1,200 dead letters"; `nouns` where an s does not make it."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
