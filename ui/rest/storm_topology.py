"""Documents of Storm's REST API on one topology: its page, its components, metrics and visualization. Thread: any.

Counts are exact where Storm samples. The time that Storm calls process latency, from `execute` to ack, is not measured:
it is that of `execute` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from squall.engine.api.config import SETTINGS
from squall.engine.api.topology import ALL
from squall.engine.errors import UsageError
from squall.scheduler.client.statuses import ComponentStatus, ExecutorShown
from squall.ui.charts import WindowCounts, windowed
from squall.ui.cluster_api import ALL_TIME, WINDOWS, ClusterApi
from squall.ui.history import ComponentCounts, counts_of, total
from squall.ui.rest.storm_cluster import by_id, place, pretty, topology_row, worker_rows
from squall.ui.sampler import Sample, Unknown

_DEBUG = {"debug": False, "samplingPct": 10}


def hint(window: str) -> str:
    """A window for people."""
    if window not in WINDOWS:
        raise UsageError(f"window {window!r:.80} is none of {', '.join(WINDOWS)}")
    secs = WINDOWS[window]
    return "All time" if secs is None else pretty(secs)


def _number(value: float) -> str:
    return f"{value:.3f}"


def _stats(kind: str, done: WindowCounts) -> dict[str, Any]:
    """What a spout or bolt did."""
    counts = {name: getattr(done, name) for name in ("emitted", "transferred", "acked", "failed")}
    if kind == "spout":
        return {**counts, "completeLatency": _number(done.complete_ms)}
    return {
        **counts, "executed": done.executed, "executeLatency": _number(done.execute_ms),
        "processLatency": _number(done.execute_ms), "capacity": _number(done.capacity),
    }


def topology_page(api: ClusterApi, id: str, window: str = ALL_TIME) -> dict[str, Any]:
    sample, pretty_window = by_id(api, id), hint(window)
    done = api.activity(sample.status.name, window)
    rows: dict[str, list[dict[str, Any]]] = {"spout": [], "bolt": []}
    for name, component in sample.status.components.items():
        kind = component.kind
        rows[kind].append({
            f"{kind}Id": name, f"encoded{kind.title()}Id": quote(name, ""), "executors": component.executors,
            "tasks": component.tasks, **_stats(kind, done[name]), **_last_error(sample, name),
        })
    return {
        **topology_row(sample), "msgTimeout": sample.conf["message_timeout_secs"], "window": window,
        "windowHint": pretty_window, **_DEBUG, "configuration": configuration(sample),
        "visualizationTable": visualization_table(sample), "workers": worker_rows(sample),
        "topologyStats": [_topology_stats(api, sample, each) for each in WINDOWS], "spouts": rows["spout"],
        "bolts": rows["bolt"],
    }


def configuration(sample: Sample) -> dict[str, Any]:
    """The topology's settings, by Storm's keys."""
    return {SETTINGS[key].storm_key if key in SETTINGS else key: value for key, value in sample.conf.items()}


def _topology_stats(api: ClusterApi, sample: Sample, window: str) -> dict[str, Any]:
    over_secs, counts = api.window(sample.status.name, window)
    components = sample.status.components
    spouts = total([done for name, done in counts.items() if components[name].kind == "spout"])
    done = windowed(over_secs, spouts, 1)
    every = total(list(counts.values()))
    return {
        "window": window, "windowPretty": hint(window), "emitted": every.emitted, "transferred": every.transferred,
        "completeLatency": _number(done.complete_ms), "acked": spouts.acked, "failed": spouts.failed,
    }


def errors_of(sample: Sample, component: str) -> list[dict[str, Any]]:
    """The last failures of a component with an error, oldest first."""
    known = sample.status.failures.get(component)
    failures = [] if known is None else [each for each in known.last if each.error]
    return [
        {
            "errorTime": int(sample.at_unix_secs - sample.status.duration_secs + each.at_secs),
            "errorHost": each.worker.rpartition(":")[0], "errorPort": int(each.worker.rpartition(":")[2] or 0),
            "errorLapsedSecs": int(sample.status.duration_secs - each.at_secs),
            "errorWorkerLogLink": place(sample, each.worker)["workerLogLink"] if each.worker else "",
            "error": each.error,
        }
        for each in failures
    ]


def _last_error(sample: Sample, component: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("errorTime", "errorHost", "errorPort", "errorLapsedSecs", "errorWorkerLogLink"))
    last: dict[str, Any] = next(reversed(errors_of(sample, component)), {**nothing, "error": ""})
    return {"lastError": last.pop("error"), **last}


def component_page(api: ClusterApi, id: str, component: str, window: str = ALL_TIME) -> dict[str, Any]:
    sample, pretty_window = by_id(api, id), hint(window)
    status = sample.status
    if component not in status.components:
        raise Unknown(f"topology {status.name} has no component {component!r:.80}")
    row = status.components[component]
    kind, done = row.kind, {each: api.activity(status.name, each)[component] for each in WINDOWS}
    windows = [{"window": each, "windowPretty": hint(each), **_stats(kind, done[each])} for each in WINDOWS]
    return {
        "componentType": kind, "id": component, "name": status.name, "executors": row.executors,
        "tasks": row.tasks, "window": window, "windowHint": pretty_window, "topologyId": status.id,
        "topologyName": status.name, "topologyStatus": status.status,
        "componentErrors": errors_of(sample, component), "spoutSummary" if kind == "spout" else "boltStats": windows,
        "inputStats": by_input(sample, row, done[window]), "outputStats": by_output(row, done[window]),
        "executorStats": _executors(sample, component, kind), **_DEBUG, "eventLogLink": "",
        "profilingAndDebuggingCapable": False, "profileActionEnabled": False, "profilerActive": [],
    }


def by_input(sample: Sample, component: ComponentStatus, done: WindowCounts) -> list[dict[str, Any]]:
    """Numbers by input: a component counts its inputs together, so of several each has its share of what was emitted on
    them."""
    components, streams = sample.status.components, []
    for each in component.inputs:
        emitted = components[each.component].outputs[each.stream].emitted
        weight = emitted * component.tasks if each.grouping == ALL else emitted
        streams.append((weight, {"component": each.component, "stream": each.stream}))
    return _divided(
        _stats("bolt", done), streams, "executed", "acked", "failed", "executeLatency", "processLatency",
    )


def by_output(component: ComponentStatus, done: WindowCounts) -> list[dict[str, Any]]:
    """Numbers by output; of several each has its share, as above."""
    streams = [(output.emitted, {"stream": stream}) for stream, output in component.outputs.items()]
    answers = ("acked", "failed", "completeLatency") if component.kind == "spout" else ()
    return _divided(_stats(component.kind, done), streams, "emitted", "transferred", *answers)


def _divided(stats: dict[str, Any], streams: list[tuple[int, dict[str, str]]], *keys: str) -> list[dict[str, Any]]:
    """A row for each of the streams, which come with weights. Counts are divided, means, which are texts, are not."""
    whole = sum(weight for weight, _ in streams)
    rows = []
    for weight, stream in streams:
        share = weight / whole if whole else 1 / len(streams)
        figures = {key: round(stats[key] * share) if isinstance(stats[key], int) else stats[key] for key in keys}
        rows.append({**stream, **figures})
    return rows


def _executors(sample: Sample, name: str, kind: str) -> list[dict[str, Any]]:
    return [
        {"id": "[{}-{}]".format(*each.tasks), **place(sample, each.worker), **_stats(kind, done)}
        for each, done in by_executor(sample, name)
    ]


def by_executor(sample: Sample, name: str) -> Iterator[tuple[ExecutorShown, WindowCounts]]:
    """Yield each executor of a component with what it has done since the submission."""
    by_task = {reading.task: reading for reading in sample.readings if reading.component == name}
    for each in sample.status.executors:
        if each.component == name:
            first, last = each.tasks
            mine = [by_task[task] for task in range(first, last + 1) if task in by_task]
            # There is nothing to read until its worker's board is there.
            done = counts_of(mine) if mine else ComponentCounts()
            yield each, windowed(sample.status.duration_secs, done, last - first + 1)


def metrics(api: ClusterApi, id: str, window: str = ALL_TIME) -> dict[str, Any]:
    sample, pretty_window = by_id(api, id), hint(window)
    done = api.activity(sample.status.name, window)
    rows: dict[str, list[dict[str, Any]]] = {"spout": [], "bolt": []}
    for name, component in sample.status.components.items():
        outputs, kind = by_output(component, done[name]), component.kind
        answered = outputs if kind == "spout" else by_input(sample, component, done[name])
        sent = {key: _column(outputs, key) for key in ("emitted", "transferred")}
        rows[kind].append({
            "id": name, **sent, **{key: _column(answered, own) for key, own in _METRICS[kind].items()},
        })
    return {"window": window, "window-hint": pretty_window, "spouts": rows["spout"], "bolts": rows["bolt"]}


_METRICS = {
    "spout": {"acked": "acked", "failed": "failed", "complete_ms_avg": "completeLatency"},
    "bolt": {
        "acked": "acked", "failed": "failed", "executed": "executed", "process_ms_avg": "processLatency",
        "executed_ms_avg": "executeLatency",
    },
}


def _column(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """A figure of each output, or of each input."""
    return [
        {f"{name}_id": row[name] for name in ("component", "stream") if name in row} | {"value": row[key]}
        for row in rows
    ]


def _streams(sample: Sample) -> list[str]:
    return sorted({stream for component in sample.status.components.values() for stream in component.outputs})


def visualization_table(sample: Sample) -> list[dict[str, Any]]:
    """Rows of four streams."""
    cells = [{":stream": stream, ":sani-stream": stream, ":checked": True} for stream in _streams(sample)]
    return [{":row": cells[at : at + 4]} for at in range(0, len(cells), 4)]


def visualization_init(api: ClusterApi, id: str) -> dict[str, Any]:
    return {"visualizationTable": visualization_table(by_id(api, id))}


def lag(api: ClusterApi, id: str) -> list[dict[str, Any]]:
    """As Storm tells of a spout whose lag it could not read; an empty list would say that none reads Kafka."""
    row = {"spoutType": "UNKNOWN", "errorInfo": "how far it is behind is not known here: ask what it reads from"}
    components = by_id(api, id).status.components
    return [{"spoutId": name, **row} for name, component in components.items() if component.kind == "spout"]


def visualization(api: ClusterApi, id: str, window: str = ALL_TIME) -> dict[str, Any]:
    sample = by_id(api, id)
    hint(window)
    done = api.activity(sample.status.name, window)
    return {
        name: {
            ":type": component.kind, ":capacity": done[name].capacity,
            ":latency": done[name].complete_ms if component.kind == "spout" else done[name].execute_ms,
            ":transferred": done[name].transferred, ":link": "",
            ":stats": [
                {":host": row["host"], ":port": row["port"], ":uptime_secs": row["uptimeSeconds"],
                 ":transferred": row["transferred"]}
                for row in _executors(sample, name, component.kind)
            ],
            ":inputs": [
                {":component": each.component, ":stream": each.stream, ":sani-stream": each.stream,
                 ":grouping": each.grouping}
                for each in component.inputs
            ],
        }
        for name, component in sample.status.components.items()
    }
