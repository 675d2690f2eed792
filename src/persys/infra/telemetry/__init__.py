"""Logs, metrics and traces of a process.

`logs.py`          structured logs; `plain_structlog.py`: their library without what they do not use
`tracing.py`       spans; no cost while tracing is off
`otlp.py`          the OpenTelemetry exporter, imported only when tracing is on
`settings.py`      tracing settings
`call_metrics.py`  counters and histograms of calls
`side_server.py`   the HTTP server for /health and /metrics
"""
