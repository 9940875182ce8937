"""What a cluster measures, for programs that collect metrics: one set of values, for Prometheus and for OTLP."""
