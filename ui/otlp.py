"""What `measured` gives, sent to an OTLP receiver (`--otlp ENDPOINT`) through OpenTelemetry's SDK.

The values are the SDK's own data points, made anew for each export: its observable instruments know no histograms, and
users' metrics are not known beforehand.

Guarantees: names and labels are those of /metrics. A receiver that is away costs its samples, and OpenTelemetry's
exporter says so in the log, the first, tenth, hundredth ... time. Thread: its own.
"""

from __future__ import annotations

import logging
import threading
import time
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from squall.engine.api.user_metrics import COUNTER, GAUGE
from squall.engine.errors import SquallError
from squall.engine.report.failure_log import Repeats
from squall.ui.cluster_api import ClusterApi
from squall.ui.measured import Distribution, Family, families

_exporter_log = logging.getLogger(OTLPMetricExporter.__module__)

EVERY_SECS = 15.0
_UNITS = {"seconds": "s", "bytes": "By"}
_CUMULATIVE = export.AggregationTemporality.CUMULATIVE


class OtlpSender:
    """Sends everything that is measured to one receiver, until it is closed."""

    def __init__(self, api: ClusterApi, endpoint: str, every_secs: float = EVERY_SECS) -> None:
        """`endpoint`: such as http://127.0.0.1:4318, with a path if it is not /v1/metrics."""
        url = endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint.rstrip('/')}/v1/metrics"
        self._api = api
        self._every_secs = every_secs
        self._exporter = OTLPMetricExporter(url)
        told = Repeats()
        _exporter_log.addFilter(lambda record: _is_told(record, told))
        self._began_ns = time.time_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send no more."""
        self._stop.set()
        self._exporter.shutdown()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every_secs):
            try:
                self._exporter.export(self._data())
            except SquallError as error:
                _exporter_log.warning("nothing is sent by OTLP: %s", error)

    def _data(self) -> export.MetricsData:
        now_ns = time.time_ns()
        metrics = [self._metric(family, now_ns) for family in families(self._api) if family.series]
        scope = export.ScopeMetrics(InstrumentationScope("squall"), metrics, "")
        resource = Resource.create({"service.name": "squall", "squall.dir": str(self._api.run_dir.path)})
        return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])

    def _metric(self, family: Family, now_ns: int) -> export.Metric:
        numbers: list[NumberDataPoint] = []
        histograms: list[HistogramDataPoint] = []
        for values, measured in family.series.items():
            labels = dict(zip(family.labels, values, strict=True))
            if isinstance(measured, Distribution):
                histograms.append(HistogramDataPoint(
                    labels, self._began_ns, now_ns, sum(measured.counts), measured.total, measured.counts,
                    measured.bounds, float("nan"), float("nan"),
                ))
            else:
                numbers.append(NumberDataPoint(labels, self._began_ns, now_ns, measured))
        data: export.Sum | export.Gauge | export.Histogram
        if family.kind == COUNTER:
            data = export.Sum(numbers, _CUMULATIVE, is_monotonic=True)
        elif family.kind == GAUGE:
            data = export.Gauge(numbers)
        else:
            data = export.Histogram(histograms, _CUMULATIVE)
        unit = next((unit for word, unit in _UNITS.items() if word in family.name), "1")
        return export.Metric(family.name, family.help, unit, data)


def _is_told(record: logging.LogRecord, told: Repeats) -> bool:
    """Count equal lines of the log; return False for one that need not be told again yet."""
    line = told.line(record.getMessage(), record.msg)
    record.msg, record.args = line or "", ()
    return line is not None
