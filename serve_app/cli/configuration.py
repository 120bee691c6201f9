"""Which settings a command works with, from whatever folder it is called."""

from __future__ import annotations

import os
from pathlib import Path

from serve_app.config import settings
from serve_app.config.settings import Settings
from serve_app.local.running import RunningService, running

IN_FOLDER = Path("configs/local.yaml")


def load(config: Path | None) -> Settings:
    """Those of the file named, else of the service that runs on this machine, else of `configs/local.yaml` here.

    Raises FileNotFoundError when there is none of these, or ValueError naming what is wrong.
    """
    services = running()
    if config is None and services:
        return _of(_only(services))
    chosen = settings.load(named_or_here(config))
    if config is not None and not chosen.data_dir.exists():
        # A path in the file is relative to the folder that the service was started in.
        for service in services:
            if service.config == config.resolve():
                return _of(service)
    return chosen


def named_or_here(config: Path | None) -> Path:
    """The file to start a service with: the one named, else `configs/local.yaml` here. Raises FileNotFoundError."""
    if config is not None:
        return config
    if not IN_FOLDER.is_file():
        raise FileNotFoundError(
            f"no settings: there is no {IN_FOLDER} in this folder; name a file with --config or GEN_CONFIG"
        )
    return IN_FOLDER


def _only(services: list[RunningService]) -> RunningService:
    if len(services) > 1:
        files = ", ".join(str(service.config) for service in services)
        raise ValueError(f"several services run on this machine; choose one with --config: {files}")
    return services[0]


def _of(service: RunningService) -> Settings:
    """With the paths that the service has, unless the environment names others."""
    paths = {"data_dir": service.data_dir, "catalog": service.catalog}
    changes = {name: path for name, path in paths.items() if f"GEN_{name.upper()}" not in os.environ}
    return settings.load(service.config).model_copy(update=changes)
