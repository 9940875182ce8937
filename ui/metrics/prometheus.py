"""/metrics for Prometheus: what `measured` gives, through prometheus-client. Thread: any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from squall.engine.api.user_metrics import COUNTER, HISTOGRAM
from squall.engine.errors import ClusterError
from squall.ui.cluster_api import ClusterApi
from squall.ui.metrics.measured import Distribution, Family, families


class ClusterCollector(Collector):
    """The families of a cluster, anew at each scrape."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def collect(self) -> Iterator[Metric]:
        return map(_metric, families(self._api))


def _metric(family: Family) -> Metric:
    if family.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in family.series.items():
            assert isinstance(value, Distribution)
            bounds = [*map(str, value.bounds), "+Inf"]
            histogram.add_metric(labels, list(zip(bounds, value.cumulative(), strict=True)), value.total)
        return histogram
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.series.items():
        assert not isinstance(value, Distribution)
        metric.add_metric(labels, value)
    return metric


def metrics_router(api: ClusterApi) -> APIRouter:
    """The route /metrics."""
    router = APIRouter(include_in_schema=False)
    registry = CollectorRegistry()
    registry.register(ClusterCollector(api))

    @router.get("/metrics")
    def metrics(accept: Annotated[str, Header()] = "") -> Response:
        encode, content_type = choose_encoder(accept)
        try:
            return Response(encode(registry), media_type=content_type)
        except ClusterError as error:
            return PlainTextResponse(str(error), 503)

    return router
