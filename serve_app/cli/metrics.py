"""`gen-serve metrics`: the figures for Prometheus, from a process of their own."""

from __future__ import annotations

from serve_app.cli import configuration
from serve_app.cli.options import Config
from serve_app.config import catalog
from serve_app.config.addresses import reachable


def metrics(config: Config = None) -> None:
    """Serve the figures for Prometheus until stopped: for clusters, where no `gen-serve up` does.

    One process is enough, however many replicas run. It needs the task store alone, not Ray.
    """
    from serve_app.http.metrics import PATH, create_metrics_app
    from serve_app.local.listening import MetricsServer, PortInUse, listen

    chosen = configuration.load(config)
    host, port = chosen.metrics.host, chosen.metrics.port
    if port is None:
        raise ValueError("metrics.port is null: set it, or GEN_METRICS__PORT, to the port to serve the figures on")
    if chosen.redis.url is None:
        raise ValueError(
            "redis.url is not set: gen-serve up, which runs the embedded server, serves the figures there itself"
        )
    app = create_metrics_app(chosen, catalog.load(chosen))
    try:
        listener = listen(host, port, "metrics.port")
    except PortInUse as problem:
        raise ValueError(str(problem)) from None
    print(f"figures: http://{reachable(host)}:{port}{PATH}", flush=True)
    MetricsServer(app, listener).until_stopped()
