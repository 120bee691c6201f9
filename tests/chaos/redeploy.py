"""Deploys the application again on a cluster that runs: `python redeploy.py CONFIG ADDRESS`; settings from GEN_…."""

from __future__ import annotations

import sys
from pathlib import Path

import ray
from ray import serve

from serve_app import application
from serve_app.config import settings
from serve_app.local import sealing_key
from serve_app.local.embedded_redis import running_url


def main() -> None:
    config, address = Path(sys.argv[1]), sys.argv[2]
    chosen = settings.load(config)
    url = running_url(chosen.data_dir / "redis")
    if url is None:
        raise RuntimeError("no Redis server runs")
    chosen = sealing_key.with_key(chosen.with_redis(url))
    ray.init(address=address, namespace="serve", log_to_driver=False)
    serve.run(application.build(chosen), name=application.APP_NAME, route_prefix="/")


if __name__ == "__main__":
    main()
