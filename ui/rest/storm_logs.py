"""Storm's log viewer: names of logs, their text, and plain searches in them.

Guarantees: only workers' logs can be read, by the names that `names` gives. A search reads 4 MiB at most, and says
where the next one goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from squall.scheduler.client.log_tail import LogTail
from squall.ui.cluster_api import ClusterApi
from squall.ui.rest.storm_cluster import log_name, samples
from squall.ui.sampler import Unknown

CHUNK_BYTES = 4 << 20
_AROUND_BYTES = 128


def names(api: ClusterApi, topology_id: str = "", port: int | None = None) -> dict[str, Path]:
    """The logs of workers that run or have run: name -> file."""
    return {
        log_name(sample, worker): api.run_dir.logs / log_name(sample, worker)
        for sample in samples(api) if topology_id in ("", sample.document["id"])
        for worker in LogTail(api.run_dir.worker_logs(sample.document["id"])).workers
        if port is None or worker.endswith(f":{port}")
    }


def text(api: ClusterApi, file: str, start: int | None, length: int) -> bytes:
    """A part of a log, by default its end."""
    with open(_path(api, file), "rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - length) if start is None else start)
        return log.read(length)


def _path(api: ClusterApi, file: str) -> Path:
    path = names(api).get(file)
    if path is None or not path.exists():
        raise Unknown(f"there is no log {file!r:.200}")
    return path


def search(api: ClusterApi, file: str, wanted: str, limit: int, start: int) -> dict[str, Any]:
    """The places of a text in a log."""
    data, needle, at = text(api, file, start, CHUNK_BYTES), wanted.encode(), 0
    matches: list[dict[str, Any]] = []
    while needle and len(matches) < limit and (at := data.find(needle, at)) >= 0:
        end = at + len(needle)
        matches.append({
            "byteOffset": start + at, "beforeString": _shown(data[max(0, at - _AROUND_BYTES) : at]),
            "matchString": wanted, "afterString": _shown(data[end : end + _AROUND_BYTES]),
            "logviewerURL": f"/api/v1/log?file={file}&start={start + at}",
        })
        at = end
    more = start + (at if len(matches) == limit else len(data))
    return {
        "searchString": wanted, "startByteOffset": start, "matches": matches, "isDaemon": "no",
        **({"nextByteOffset": more} if len(matches) == limit or len(data) == CHUNK_BYTES else {}),
    }


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")
