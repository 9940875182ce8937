"""Documents of Storm's REST API on the cluster: its summary, supervisors, and the rows of topologies. Thread: any."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import quote

import psutil

from squall.engine.api.config import Config
from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import daemon_process
from squall.scheduler.common.process import secs_since
from squall.ui.cluster_api import ClusterApi
from squall.ui.sampler import Sample, Unknown

VERSION = "2.8.8"
"""Of the Storm whose API this is."""
# Storm schedules by memory and CPU; here nobody asks for any, and pages do not show it.
_NO_MEMORY = dict.fromkeys(
    ("requestedMemOnHeap", "requestedMemOffHeap", "requestedTotalMem", "requestedCpu", "assignedMemOnHeap",
     "assignedMemOffHeap", "assignedTotalMem", "assignedCpu"), 0.0,
)
_NO_SUPPLY = dict.fromkeys(("totalMem", "totalCpu", "usedMem", "usedCpu", "availMem", "availCpu"), 0.0)


def pretty(secs: float) -> str:
    """A time as Storm writes it: "1d 2h 3m 4s"."""
    days, rest = divmod(int(secs), 86400)
    hours, rest = divmod(rest, 3600)
    numbers = [(days, "d"), (hours, "h"), (rest // 60, "m"), (rest % 60, "s")]
    while len(numbers) > 1 and not numbers[0][0]:
        del numbers[0]
    return " ".join(f"{number}{unit}" for number, unit in numbers)


def uptime(secs: float | None, key: str = "uptime") -> dict[str, Any]:
    return {key: pretty(secs or 0), f"{key}Seconds": int(secs or 0)}


def daemon_uptime(run_dir: RunDir, name: str) -> float:
    record = daemon_process(run_dir, name)
    return 0.0 if record is None else secs_since(record.started_ticks)


def by_id(api: ClusterApi, topology_id: str) -> Sample:
    """The topology of an id. Unknown if there is none."""
    for sample in samples(api):
        if sample.status.id == topology_id:
            return sample
    raise Unknown(f"there is no topology of id {topology_id!r:.80}")


def samples(api: ClusterApi) -> list[Sample]:
    return [api.sampler.latest(name) for name in api.sampler.names()]


def _tasks(sample: Sample) -> int:
    return sum(last - first + 1 for first, last in (each.tasks for each in sample.status.executors))


def _user() -> str:
    """Whose the cluster is: a name, or the id of a user without one, as in a container."""
    return psutil.Process().username()


def cluster_summary(api: ClusterApi) -> dict[str, Any]:
    cluster, looks = api.cluster(), samples(api)
    slots = sum(map(len, cluster.nodes.values()))
    up_secs = daemon_uptime(api.run_dir, "nimbus")
    return {
        "user": _user(), "stormVersion": VERSION, "nimbusUptime": pretty(up_secs),
        "stormVersionInfo": {"version": VERSION, "revision": "", "branch": "", "date": "", "srcChecksum": ""},
        "supervisors": len(cluster.nodes) - len(cluster.gone), "topologies": len(looks), "slotsTotal": slots,
        "slotsUsed": slots - len(cluster.free_slots), "slotsFree": len(cluster.free_slots),
        "tasksTotal": sum(map(_tasks, looks)), "executorsTotal": sum(len(one.status.executors) for one in looks),
        **_NO_SUPPLY, "fragmentedMem": 0.0, "fragmentedCpu": 0.0, "memAssignedPercentUtil": "0.0",
        "cpuAssignedPercentUtil": "0.0", "totalGenerics": "", "availGenerics": "", "schedulerDisplayResource": False,
        "bugtracker-url": None, "central-log-url": None, "alternativeWorkerVersions": [],
    }


def configuration(api: ClusterApi) -> dict[str, Any]:
    """The defaults of all settings, by Storm's keys."""
    return {storm_key: value for _, storm_key, value, _ in Config()}


def nimbus_summary(api: ClusterApi) -> dict[str, Any]:
    return {"nimbuses": [{
        "host": "localhost", "port": 0, "status": "Offline" if api.cluster().away else "Leader", "version": VERSION,
        **uptime(daemon_uptime(api.run_dir, "nimbus"), "nimbusUpTime"), "nimbusLogLink": "",
    }]}


def supervisor_summary(api: ClusterApi) -> dict[str, Any]:
    return {
        "supervisors": [_supervisor(api, node) for node in api.cluster().nodes], "logviewerPort": 0,
        "logviewerScheme": "http", "schedulerDisplayResource": False,
    }


def _supervisor(api: ClusterApi, node: str) -> dict[str, Any]:
    cluster = api.cluster()
    slots = cluster.nodes[node]
    free = sum(slot in cluster.free_slots for slot in slots)
    return {
        # All nodes are on this machine, so the node takes the place of the host.
        "id": node, "host": node, **uptime(daemon_uptime(api.run_dir, f"supervisor-{node}")),
        "blacklisted": node in cluster.gone + cluster.leaving, "slotsTotal": len(slots),
        "slotsUsed": len(slots) - free, "slotsFree": free, **_NO_SUPPLY, "totalGenericResources": "",
        "usedGenericResources": "", "availGenericResources": "", "version": VERSION, "logLink": "",
    }


def supervisor_page(api: ClusterApi, id: str = "", host: str = "") -> dict[str, Any]:
    node = id or host
    if node not in api.cluster().nodes:
        raise Unknown(f"there is no supervisor {node!r:.80}")
    workers = [row for sample in samples(api) for row in worker_rows(sample) if row["host"] == node]
    return {"supervisors": [_supervisor(api, node)], "workers": workers, "schedulerDisplayResource": False}


def topology_row(sample: Sample) -> dict[str, Any]:
    status = sample.status
    return {
        "id": status.id, "encodedId": quote(status.id, ""), "name": status.name,
        "owner": _user(), "status": status.status, **uptime(status.uptime_secs),
        "tasksTotal": _tasks(sample), "workersTotal": len(status.workers),
        "executorsTotal": len(status.executors), "replicationCount": 1, "schedulerInfo": None, **_NO_MEMORY,
        "requestedGenericResources": "", "assignedGenericResources": "", "topologyVersion": "", "stormVersion": VERSION,
    }


def history(api: ClusterApi) -> dict[str, Any]:
    return {"topo-history": [sample.status.id for sample in samples(api)]}


def workers(api: ClusterApi, id: str) -> dict[str, Any]:
    return {"hostPortList": worker_rows(by_id(api, id)), "logviewerPort": 0, "logviewerScheme": "http"}


def topology_summary(api: ClusterApi) -> dict[str, Any]:
    return {"topologies": [topology_row(sample) for sample in samples(api)], "schedulerDisplayResource": False}


def worker_rows(sample: Sample) -> list[dict[str, Any]]:
    """A row for each worker of a topology."""
    rows = []
    for worker in sample.status.workers:
        tasks = Counter[str]()
        mine = [each for each in sample.status.executors if each.worker == worker.worker]
        for each in mine:
            tasks[each.component] += each.tasks[1] - each.tasks[0] + 1
        rows.append({
            **place(sample, worker.worker), "supervisorId": worker.worker.rpartition(":")[0],
            "topologyId": sample.status.id, "topologyName": sample.status.name,
            "executorsTotal": len(mine), "assignedMemOnHeap": 0.0, "assignedMemOffHeap": 0.0, "assignedCpu": 0.0,
            "componentNumTasks": dict(tasks), "owner": _user(),
        })
    return rows


def place(sample: Sample, worker: str) -> dict[str, Any]:
    """Where a worker is, and since when."""
    host, _, port = worker.rpartition(":")
    uptime_secs = next((each.uptime_secs for each in sample.status.workers if each.worker == worker), 0)
    return {
        "host": host, "port": int(port), **uptime(uptime_secs),
        "workerLogLink": f"/api/v1/log?file={quote(log_name(sample, worker), '')}",
    }


def log_name(sample: Sample, worker: str) -> str:
    host, _, port = worker.rpartition(":")
    return f"{sample.status.id}/{host}-{port}.log"


def owners(api: ClusterApi, owner: str = "") -> dict[str, Any]:
    """All topologies are the user's."""
    rows = [topology_row(sample) for sample in samples(api)]
    me = {
        "owner": _user(), "totalTopologies": len(rows), **_NO_MEMORY,
        "totalExecutors": sum(row["executorsTotal"] for row in rows),
        "totalWorkers": sum(row["workersTotal"] for row in rows), "totalTasks": sum(row["tasksTotal"] for row in rows),
    }
    if not owner:
        return {"owners": [me], "schedulerDisplayResource": False}
    if owner != me["owner"]:
        raise UsageError(f"{owner!r:.80} has no topologies")
    return {**me, "topologies": rows, "schedulerDisplayResource": False}
