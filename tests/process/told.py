"""What a cluster tells its user."""

from __future__ import annotations

from squall import LocalCluster


class Told:
    """All that its workers have told so far."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self.text = cluster, ""

    def has(self, text: str) -> bool:
        self.text += "".join(f"{line}\n" for _, line in self._cluster.new_log_lines())
        return text in self.text
