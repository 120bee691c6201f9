"""What of the settings opens a door, and where a process finds it.

Ray keeps what a deployment is bound with, its runtime environment too: pickled, in the controller's checkpoint and
whatever the cluster's state lies in, for everyone who may ask the cluster. So nothing of that may hold a secret.
Deployments are bound with the rest of the settings (`bound.py`), and each process reads the secrets itself, where it
runs. The first of these places that has one counts:

1. the environment: `GEN_REDIS__URL`
2. a file of that name in `secrets_dir`, as Kubernetes mounts a Secret
3. the settings file, at the path that the application was built from
4. `data_dir`, where `gen-serve init` and `gen-serve up` keep what they made: the embedded server's address, the key
   that seals
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from pydantic_settings.sources.utils import parse_env_vars

from serve_app.media.settings import ObjectSettings

REDIS_URL: Final = "redis.url"
OBJECT_OPTIONS: Final = "objects.options"
SEALING_KEYS: Final = "sealing.keys"
CLIENT_SECRET: Final = "accounts.openid.client_secret"
SECRETS: Final = (REDIS_URL, OBJECT_OPTIONS, SEALING_KEYS, CLIENT_SECRET)
"""All that deployments need. `metrics.token` is for the process that serves the figures alone."""


class NotHere(ValueError):
    """A secret that a deployment was bound without is not to be found where it runs."""


@dataclass(frozen=True, slots=True)
class Found:
    value: Any
    made: bool
    """By the service itself, in `data_dir`."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look: nothing of it is secret."""

    config: Path | None
    secrets_dir: Path | None
    data_dir: Path

    def read(self) -> dict[str, Found]:
        """By name, every secret that this process finds. Raises ValueError for one that can't be read."""
        told = _told(_Told.of(self.config, self.secrets_dir).model_dump())
        found = {name: Found(value, made=False) for name, value in told.items()}
        if REDIS_URL not in found and (url := _text(embedded_url_file(self.data_dir))):
            found[REDIS_URL] = Found(url, made=True)
        if SEALING_KEYS not in found and (key := _text(sealing_key_file(self.data_dir))):
            found[SEALING_KEYS] = Found([key], made=True)
        return found


def variable(name: str) -> str:
    """Of a setting, what the environment calls it: `GEN_REDIS__URL`."""
    return f"GEN_{name.upper().replace('.', '__')}"


def embedded_url_file(data_dir: Path) -> Path:
    """Where the embedded server says how to reach it, for as long as it runs."""
    return data_dir / "redis" / "url"


def sealing_key_file(data_dir: Path) -> Path:
    return data_dir / "sealing-key"


class SecretFiles(EnvSettingsSource):
    """Files of a folder, each named and written as its environment variable."""

    def __init__(self, settings_cls: type[BaseSettings], folder: Path) -> None:
        self._folder = folder
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        if not self._folder.is_dir():
            raise ValueError(f"secrets_dir: there is no such folder: {self._folder}")
        files = {path.name: path.read_text().strip() for path in self._folder.glob("GEN_*") if path.is_file()}
        return parse_env_vars(files, self.case_sensitive)


class _Part(BaseModel):
    """Of a section, what is secret; the rest is no matter here."""

    model_config = ConfigDict(extra="ignore")


class _Redis(_Part):
    url: str | None = None


class _Keys(_Part):
    keys: list[str] = []


class _OpenId(_Part):
    client_secret: str | None = None


class _Accounts(_Part):
    openid: _OpenId | None = None


class _Objects(_Part):
    options: dict[str, Any] = {}


class _Told(BaseSettings):
    model_config = SettingsConfigDict(
        extra="ignore", env_prefix="GEN_", env_nested_delimiter="__", hide_input_in_errors=True
    )

    redis: _Redis = _Redis()
    objects: _Objects = _Objects()
    sealing: _Keys = _Keys()
    webhooks: _Keys = _Keys()
    accounts: _Accounts = _Accounts()

    @staticmethod
    def of(config: Path | None, secrets_dir: Path | None) -> _Told:
        class Here(_Told):
            @classmethod
            def settings_customise_sources(
                cls,
                settings_cls: type[BaseSettings],
                init_settings: PydanticBaseSettingsSource,
                env_settings: PydanticBaseSettingsSource,
                dotenv_settings: PydanticBaseSettingsSource,
                file_secret_settings: PydanticBaseSettingsSource,
            ) -> tuple[PydanticBaseSettingsSource, ...]:
                return sources(settings_cls, env_settings, settings_files(config), secrets_dir)

        return Here()


def settings_files(config: Path | None) -> list[Path]:
    """A settings file after the one that it `extends`; those that are there. Raises YAMLError."""
    if config is None or not config.is_file():
        return []
    base = (yaml.safe_load(config.read_text()) or {}).get("extends")
    return [*(settings_files(config.parent / base) if base else ()), config]


def sources(
    settings_cls: type[BaseSettings],
    environment: PydanticBaseSettingsSource,
    config: Sequence[Path],
    secrets_dir: Path | None,
) -> tuple[PydanticBaseSettingsSource, ...]:
    """The environment, the files of `secrets_dir`, the settings files, of which a later one goes before: where settings
    come from, the first first."""
    files = () if secrets_dir is None else (SecretFiles(settings_cls, secrets_dir),)
    written = [YamlConfigSettingsSource(settings_cls, yaml_file=list(config), deep_merge=True)] if config else ()
    return (environment, *files, *written)


def _told(sections: Mapping[str, Any]) -> dict[str, Any]:
    """By name, what is set."""
    options = sections["objects"]["options"]
    values = {
        REDIS_URL: sections["redis"]["url"],
        OBJECT_OPTIONS: ObjectSettings(options=options).secret_options,
        SEALING_KEYS: sections["sealing"]["keys"],
        CLIENT_SECRET: (sections["accounts"]["openid"] or {}).get("client_secret"),
    }
    return {name: json.loads(json.dumps(value)) for name, value in values.items() if value}


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
