"""What is sent by OTLP, received by HTTP and decoded by OpenTelemetry's own description of the protocol."""

from __future__ import annotations

import gzip
import queue
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from squall.ui.measured import FAMILIES
from tests.process.ui_parts import served


def test_a_receiver_gets_every_metric_by_the_protocol() -> None:
    received: queue.Queue[tuple[str, bytes]] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.put((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with served(f"http://127.0.0.1:{server.server_port}") as one:
                one.start("words")
                while True:
                    path, body = received.get(timeout=100)
                    request = ExportMetricsServiceRequest.FromString(body)
                    [resource] = request.resource_metrics
                    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
                    latency = metrics.get("squall_complete_latency_seconds")
                    if latency is not None and latency.histogram.data_points[0].count > 10:
                        break
        finally:
            server.shutdown()
            thread.join()
    assert path == "/v1/metrics"
    assert {name for name in metrics if not name.startswith("squall_user_")} <= FAMILIES.keys()
    executed = metrics["squall_executed_tuples_total"]
    assert executed.sum.is_monotonic
    labels = {each.key: each.value.string_value for each in executed.sum.data_points[0].attributes}
    assert labels.keys() == {"topology", "component", "worker", "assignment"}
    [point] = latency.histogram.data_points
    assert sum(point.bucket_counts) == point.count
    assert (latency.unit, len(point.bucket_counts)) == ("s", len(point.explicit_bounds) + 1)
    assert metrics["squall_user_lines_seen_total"].sum.data_points
