"""The first start: data folder, encryption key, API keys. Safe to repeat."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.roles import Role
from serve_app.config.settings import Settings, sealing_key_file
from serve_app.encryption import new_key


@dataclass(frozen=True, slots=True)
class SetupFile:
    """A file or folder that the service keeps in `data_dir`."""

    what: str
    path: Path
    is_new: bool


def key_file(settings: Settings) -> Path:
    return settings.data_dir / "key"


def operator_key_file(settings: Settings) -> Path:
    return settings.data_dir / "operator-key"


def ray_token_file(settings: Settings) -> Path:
    """Returns the file of the token with which the processes of a private Ray cluster authenticate."""
    return settings.data_dir / "ray-token"


def write_secret(path: Path, secret: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secret + "\n")


def with_key(settings: Settings) -> Settings:
    """Returns the settings with a sealing key. If they name none, it is that of `data_dir`, created if missing.

    A file that exists is reused: nothing that it sealed could be read without it.
    """
    if settings.has_sealing_keys:
        return settings
    path = sealing_key_file(settings.data_dir)
    if not path.exists():
        write_secret(path, new_key())
    return settings.with_sealing_key(path.read_text().strip())


def with_existing_key(settings: Settings) -> Settings:
    """Returns the settings with the sealing key of `data_dir`, if there is one. Makes none."""
    return with_key(settings) if sealing_key_file(settings.data_dir).exists() else settings


def make_files(settings: Settings) -> list[SetupFile]:
    """Makes the folder, and the secrets that neither the settings nor a cluster provide."""
    folder = settings.data_dir
    files = [SetupFile("data", folder, not folder.is_dir())]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings.has_sealing_keys:
        path = sealing_key_file(folder)
        files.append(SetupFile("sealing key", path, not path.exists()))
        with_key(settings)
    if settings.ray.address is None:
        path = ray_token_file(settings)
        files.append(SetupFile("Ray's token", path, not path.exists()))
        if not path.exists():
            write_secret(path, secrets.token_hex(32))
    return files


async def make_keys(settings: Settings, redis: Redis) -> list[SetupFile]:
    """Makes the local API keys. On a new or emptied Redis it makes those of the files valid again."""
    prefix = settings.redis.prefix
    return [
        await _make_key(redis, prefix, "API key", key_file(settings), Role.DEVELOPER),
        await _make_key(redis, prefix, "operator's API key", operator_key_file(settings), Role.OPERATOR),
    ]


async def _make_key(redis: Redis, prefix: str, what: str, path: Path, role: Role) -> SetupFile:
    secret = await asyncio.to_thread(_read, path)
    keys = KeyStore(redis, prefix)
    if secret and await Callers(redis, prefix).authenticate(secret):
        return SetupFile(what, path, is_new=False)
    reusable = None if secret and await keys.is_revoked(secret) else secret
    new_secret = (await keys.create("local", secret=reusable, role=role, once=False))[1]
    if new_secret != secret:
        await asyncio.to_thread(write_secret, path, new_secret)
    return SetupFile(what, path, is_new=new_secret != secret)


def _read(path: Path) -> str | None:
    return path.read_text().strip() if path.exists() else None
