"""Deploys the application again on a running cluster: `python redeploy.py CONFIG ADDRESS`, with settings from GEN_…."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from serve_app.config import settings
from serve_app.launcher.embedded_redis import running_url
from serve_app.launcher.first_start import with_key


def main() -> None:
    config, address = Path(sys.argv[1]), sys.argv[2]
    loaded_settings = settings.load(config)
    url = running_url(loaded_settings.data_dir / "redis")
    if url is None:
        raise RuntimeError("no Redis server is running")
    loaded_settings = with_key(loaded_settings.with_redis(url))
    # The cluster on loopback needs a token. Ray reads these variables at import.
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(loaded_settings.data_dir / "ray-token"),
    }
    import ray
    from ray import serve

    from serve_app import application

    ray.init(address=address, namespace="serve", log_to_driver=False)
    # A new revision: otherwise unchanged replicas would keep running.
    serve.run(application.build(loaded_settings, secrets.token_hex(4)), name=application.APP_NAME, route_prefix="/")


if __name__ == "__main__":
    main()
