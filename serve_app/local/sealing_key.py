"""The key that seals, of a service whose settings name none: in its data folder, made at first start."""

from __future__ import annotations

from serve_app.config.settings import Settings
from serve_app.config.sources import sealing_key_file
from serve_app.local.secret_file import write_secret
from serve_app.sealing.at_rest import new_key


def with_key(settings: Settings) -> Settings:
    """The same settings with that key, where they name none. Without it, what was sealed before can't be read."""
    if settings.has_sealing_keys:
        return settings
    path = sealing_key_file(settings.data_dir)
    if not path.exists():
        write_secret(path, new_key())
    return settings.with_sealing_key(path.read_text().strip())


def with_key_if_made(settings: Settings) -> Settings:
    """The same, but where there is no such key yet, none is made."""
    return with_key(settings) if sealing_key_file(settings.data_dir).exists() else settings
