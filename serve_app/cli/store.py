"""Settings, Redis and object store of a service, for commands that read them directly."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.config import settings
from serve_app.config.settings import Settings
from serve_app.encryption import AtRest
from serve_app.launcher.embedded_redis import EmbeddedRedis, running_url
from serve_app.launcher.first_start import with_existing_key
from serve_app.launcher.running import RunningService, running
from serve_app.storage import connection

_DEFAULT = Path("configs/local.yaml")


def load_settings(config: Path | None) -> Settings:
    """Those of the file named, else of the service that runs on this machine, else of `configs/local.yaml`.

    Raises FileNotFoundError when the file named is not there, or ValueError naming what is wrong.
    """
    services = running()
    if config is None and services:
        return _load_for(_only(services))
    chosen = settings.load(settings_file(config))
    if config is not None and not chosen.data_dir.exists():
        # A path in the file is relative to the folder that the service was started in.
        for service in services:
            if service.config == chosen.file:
                return _load_for(service)
    return chosen


def settings_file(config: Path | None) -> Path:
    """The file to start a service with: the one named, else `configs/local.yaml`, here or as it came."""
    return settings.find_file(config or _DEFAULT)


def _only(services: list[RunningService]) -> RunningService:
    if len(services) > 1:
        files = ", ".join(str(service.config) for service in services)
        raise ValueError(f"several services run on this machine; choose one with --config: {files}")
    return services[0]


def _load_for(service: RunningService) -> Settings:
    """With the paths that the service has, unless the environment names others."""
    paths = {"data_dir": service.data_dir, "catalog": service.catalog}
    changes = {name: path for name, path in paths.items() if f"GEN_{name.upper()}" not in os.environ}
    return settings.load(service.config).model_copy(update=changes)


@asynccontextmanager
async def open_redis(config: Path | None, *, make: bool = False) -> AsyncIterator[tuple[Redis, str]]:
    """A client and the key prefix. Starts the embedded server for as long as needed when none runs.

    Raises FileNotFoundError where there is no data yet, unless it is to `make` some.
    """
    chosen = load_settings(config)
    server: EmbeddedRedis | None = None
    url = chosen.redis.url or running_url(chosen.data_dir / "redis")
    if url is None:
        if not make and not (chosen.data_dir / "redis").is_dir():
            raise FileNotFoundError(
                f"there is no data in {chosen.data_dir} yet; gen-serve up makes it, --config names another"
            )
        server = EmbeddedRedis(chosen.data_dir / "redis")
        server.start()
        url = server.url
    redis = connection.connect(url)
    try:
        yield redis, chosen.redis.prefix
    finally:
        await redis.aclose()
        if server is not None:
            server.stop()


def at_rest(config: Path | None) -> AtRest:
    """Reads what the service sealed, as far as the keys are here."""
    return with_existing_key(load_settings(config)).at_rest()


def object_store(config: Path | None) -> ObjectStore:
    """Where the service keeps its objects."""
    chosen = load_settings(config)
    return ObjectStore(chosen.objects_url, chosen.objects.options)


def objects_to_read(config: Path | None) -> ObjectStore:
    """The same, only to be read: a folder that is not there is not made, but read as an empty one."""
    chosen = load_settings(config)
    if chosen.objects.url is None and not chosen.data_dir.is_dir():
        return ObjectStore("memory:///")
    return object_store(config)
