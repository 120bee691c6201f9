"""The key that seals, of a service whose settings name none: in its data folder, made at first start."""

from __future__ import annotations

from pathlib import Path

from serve_app.config.settings import Settings
from serve_app.local.secret_file import write_secret
from serve_app.sealing.sealer import new_key


def with_key(settings: Settings) -> Settings:
    """The same settings with that key, where they name none. Without it, what was sealed before can't be read."""
    if settings.has_sealing_keys:
        return settings
    path = _path(settings.data_dir)
    if not path.exists():
        write_secret(path, new_key())
    return settings.with_sealing_key(path.read_text().strip())


def with_key_if_made(settings: Settings) -> Settings:
    """The same, but where there is no such key yet, none is made."""
    return with_key(settings) if _path(settings.data_dir).exists() else settings


def _path(folder: Path) -> Path:
    """Services from before what clients wrote was sealed have a key for the secrets of webhooks, which does as well."""
    former = folder / "webhook-key"
    return former if former.exists() else folder / "sealing-key"
