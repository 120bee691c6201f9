"""Access to the settings, Redis and object store of a service, for commands that do not use its API."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.config import settings as all_settings
from serve_app.config.settings import Settings
from serve_app.encryption import AtRest
from serve_app.launcher.embedded_redis import EmbeddedRedis, running_url
from serve_app.launcher.first_start import with_existing_key
from serve_app.launcher.running import RunningService, running
from serve_app.storage import connection

_DEFAULT = Path("configs/local.yaml")


def load_settings(config: Path | None) -> Settings:
    """Loads the file given, else the settings of the service on this machine, else `configs/local.yaml`.

    Raises FileNotFoundError if the file given does not exist, and ValueError for a wrong setting.
    """
    services = running()
    if config is None and services:
        return _load_for(_only(services))
    settings = all_settings.load(settings_file(config))
    if config is not None and not settings.data_dir.exists():
        # Paths in the file are relative to the folder in which the service was started.
        for service in services:
            if service.config == settings.file:
                return _load_for(service)
    return settings


def settings_file(config: Path | None) -> Path:
    """Returns the file given, else `configs/local.yaml` of this folder, else that of the package."""
    return all_settings.find_file(config or _DEFAULT)


def _only(services: list[RunningService]) -> RunningService:
    if len(services) > 1:
        files = ", ".join(str(service.config) for service in services)
        raise ValueError(f"several services run on this machine; choose one with --config: {files}")
    return services[0]


def _load_for(service: RunningService) -> Settings:
    """Loads a service's settings with its own paths, unless the environment overrides them."""
    paths = {"data_dir": service.data_dir, "catalog": service.catalog}
    changes = {name: path for name, path in paths.items() if f"GEN_{name.upper()}" not in os.environ}
    return all_settings.load(service.config).model_copy(update=changes)


@asynccontextmanager
async def open_redis(config: Path | None, *, create: bool = False) -> AsyncIterator[tuple[Redis, str]]:
    """Opens a client, with the key prefix. Starts the embedded server meanwhile if it does not run.

    Raises FileNotFoundError if there is no data yet, unless `create` is set.
    """
    settings = load_settings(config)
    server: EmbeddedRedis | None = None
    url = settings.redis.url or running_url(settings.data_dir / "redis")
    if url is None:
        if not create and not (settings.data_dir / "redis").is_dir():
            raise FileNotFoundError(
                f"there is no data in {settings.data_dir}; gen-serve up creates it, --config names other settings"
            )
        server = EmbeddedRedis(settings.data_dir / "redis")
        server.start()
        url = server.url
    redis = connection.connect(url)
    try:
        yield redis, settings.redis.prefix
    finally:
        await redis.aclose()
        if server is not None:
            server.stop()


def at_rest(config: Path | None) -> AtRest:
    """Returns the decryption with the keys that this machine has."""
    return with_existing_key(load_settings(config)).at_rest()


def object_store(config: Path | None) -> ObjectStore:
    settings = load_settings(config)
    return ObjectStore(settings.objects_url, settings.objects.options)


def readable_object_store(config: Path | None) -> ObjectStore:
    """Returns the object store for reading only: a missing folder reads as empty and is not created."""
    settings = load_settings(config)
    if settings.objects.url is None and not settings.data_dir.is_dir():
        return ObjectStore("memory:///")
    return object_store(config)
