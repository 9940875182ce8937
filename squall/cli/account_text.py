"""What a report says of failures and of the components' own metrics, as lines for people.

From the report as a document (`RunReport.to_dict()`), which is what `squall run` and `squall status` both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def failure_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Counts by reason of each component, and its last failure; what the links lost."""
    for name, failures in document["failures"].items():
        counts = ", ".join(f"{count:,} {reason}" for reason, count in failures["counts"].items())
        last = failures["last"][-1]
        where = f" in {last['component']}[{last['task']}]" if last["component"] else ""
        on = f" on {last['worker']}" if last["worker"] else ""
        error = f": {last['error']}" if last["error"] else ""
        yield (
            f"failures of {name}: {counts}; the last at {last['at_secs']:.2f} s was message {last['message_id']} of "
            f"{last['spout']}, {last['reason']}{where}{on}{error} (attempt {last['attempt']})"
        )
    if any(document["links"].values()):
        yield "links: " + ", ".join(f"{count:,} {name}" for name, count in document["links"].items())


def metric_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What the components measured themselves."""
    for component, metrics in document["metrics"].items():
        for name, value in metrics.items():
            yield f"{component}: {name} = {_shown(value)}"


def _shown(value: object) -> str:
    """A counter, a gauge per task, or a histogram."""
    if not isinstance(value, dict):
        return f"{value:,}"
    return ", ".join(f"{key if isinstance(key, str) else f'task {key}'} {number:,.6g}" for key, number in value.items())
