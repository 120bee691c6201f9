"""The application on a cluster that others run, too: deployed, and taken away, without a hand on anything else."""

from __future__ import annotations

from typing import Final

from ray import serve
from ray.exceptions import RayTaskError
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.context import _get_global_client

from serve_app.application import APP_NAME
from serve_app.config.settings import Settings

_PROXIES: Final = {"head": ProxyLocation.HeadOnly, "every_node": ProxyLocation.EveryNode}


def listen(settings: Settings) -> str | None:
    """Has Serve listen where `settings` say, if none runs yet.

    One that runs is left as it is, since restarting it would stop everybody's applications. Returns what there is to
    say when it listens elsewhere. Raises RuntimeError where it can't listen.
    """
    host, port = settings.service.host, settings.service.port
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        proxies = _PROXIES[settings.service.proxies]
        try:
            serve.start(http_options=HTTPOptions(host=host, port=port), proxy_location=proxies)
        except RayTaskError as problem:
            raise RuntimeError(f"Serve does not listen on {host}:{port}: {str(problem.cause).strip()}") from None
        return None
    there = client.http_config
    if (there.host, there.port) == (host, port):
        return None
    return (
        f"Serve runs on this cluster already and listens on {there.host}:{there.port}: service.host and service.port, "
        f"{host}:{port}, are not what clients reach"
    )


def deploy(application: serve.Application) -> None:
    """Returns once all of it runs. What is there of the same version stays. Raises RuntimeError where it fails."""
    serve.run(application, name=APP_NAME, route_prefix="/")


def remove() -> bool:
    """Takes the application off the cluster, in order: what has begun is finished. Returns whether it was there."""
    if APP_NAME not in serve.status().applications:
        return False
    serve.delete(APP_NAME)
    return True
