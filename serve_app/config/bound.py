"""Settings as deployments are bound with them: without their secrets, which each replica reads where it runs.

Ray keeps what a deployment is bound with, its runtime environment too: pickled, in the controller's checkpoint and
whatever the cluster's state lies in, for everyone who may ask the cluster. So nothing of that may hold a secret. A
replica finds each secret in the first of these places that has it: the environment (`GEN_REDIS__URL`), a file of that
name in `secrets_dir`, the settings file at the path that the application was built from, and `data_dir`, where
`gen-serve init` and `gen-serve up` keep what they made: the embedded server's address, the key that seals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pydantic import SecretStr, TypeAdapter

from serve_app.config import settings as all_settings
from serve_app.config.settings import Settings
from serve_app.config.sources import embedded_url_file, sealing_key_file, variable

REDIS_URL: Final = "redis.url"
OBJECT_OPTIONS: Final = "objects.options"
SEALING_KEYS: Final = "sealing.keys"
CLIENT_SECRET: Final = "accounts.openid.client_secret"
SECRETS: Final = (REDIS_URL, OBJECT_OPTIONS, SEALING_KEYS, CLIENT_SECRET)
"""All that deployments need. `metrics.token` is for the process that serves the metrics alone."""
_LEFT_OUT: Final[Any] = {
    "redis": {"url"},
    "objects": {"options"},
    "sealing": {"keys"},
    "accounts": {"openid": {"client_secret"}},
    "metrics": {"token"},
}


class MissingSecret(ValueError):
    """A secret that a deployment was bound without is not to be found where it runs."""


@dataclass(frozen=True, slots=True)
class BoundSettings:
    public: str
    """All sections without their secrets, in JSON."""
    secrets: tuple[str, ...]
    """Those that were set, by name."""
    made: tuple[str, ...]
    """Those of them that the service made itself, in `data_dir`: another service's are not taken for them."""
    file: Path | None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        public = settings.model_dump(mode="json", exclude=_LEFT_OUT)
        public["objects"]["options"] = settings.objects.plain_options
        values, made = secret_values(settings), made_values(settings.data_dir)
        own = tuple(name for name in values if made.get(name) == values[name])
        return cls(json.dumps(public, sort_keys=True), tuple(values), own, settings.file)

    def settings(self) -> Settings:
        """Whole again. Raises MissingSecret where this process lacks a secret that the application was built with."""
        sections = json.loads(self.public)
        here, made = secret_values(all_settings.load_here(self.file)), made_values(Path(sections["data_dir"]))
        for name in self.secrets:
            value = (made if name in self.made else here).get(name)
            if value is None:
                raise MissingSecret(_missing(name, name in self.made))
            *path, last = name.split(".")
            section = sections
            for part in path:
                section = section[part]
            section[last] = {**section[last], **value} if name == OBJECT_OPTIONS else value
        kinds: dict[str, Any] = {name: field.annotation for name, field in Settings.model_fields.items()}
        return Settings.model_construct(
            **{name: TypeAdapter(kinds[name]).validate_python(value) for name, value in sections.items()}
        )


@dataclass(frozen=True, slots=True)
class WithheldOptions:
    """Secret options of the object store: called where they are needed, for those found there."""

    file: Path | None

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """None where no option is secret."""
        return cls(settings.file) if settings.objects.secret_options else None

    def __call__(self) -> Mapping[str, Any]:
        """Raises MissingSecret."""
        options = all_settings.load_here(self.file).objects.secret_options
        if not options:
            raise MissingSecret(_missing(OBJECT_OPTIONS, made=False))
        return options


def complete(settings: Settings) -> Settings:
    """The same, with what the service made for itself in `data_dir`, where they name nothing else.

    Raises ValueError where there is neither.
    """
    made = made_values(settings.data_dir)
    if settings.redis.url is None:
        if REDIS_URL not in made:
            raise ValueError(
                f"redis.url is not set, and no embedded server runs on {settings.data_dir}: gen-serve up starts one; "
                f"elsewhere set {variable(REDIS_URL)}, on every node"
            )
        settings = settings.with_redis(made[REDIS_URL])
    if not settings.has_sealing_keys:
        if SEALING_KEYS not in made:
            raise ValueError(
                f"sealing.keys is empty, and {settings.data_dir} has none: gen-serve init makes one, "
                f"{variable(SEALING_KEYS)} names yours"
            )
        settings = settings.with_sealing_key(made[SEALING_KEYS][0])
    return settings


def secret_values(settings: Settings) -> dict[str, Any]:
    """The secrets that are set, by name."""
    openid = settings.accounts.openid
    secret = openid.client_secret if openid else None
    found = {
        REDIS_URL: settings.redis.url,
        OBJECT_OPTIONS: settings.objects.secret_options,
        SEALING_KEYS: [key.get_secret_value() for key in settings.sealing.keys],
        CLIENT_SECRET: secret.get_secret_value() if isinstance(secret, SecretStr) else None,
    }
    return {name: value for name, value in found.items() if value}


def made_values(data_dir: Path) -> dict[str, Any]:
    """The secrets that the service made itself, by name."""
    url, key = (
        path.read_text().strip() if path.is_file() else ""
        for path in (embedded_url_file(data_dir), sealing_key_file(data_dir))
    )
    return {**({REDIS_URL: url} if url else {}), **({SEALING_KEYS: [key]} if key else {})}


def _missing(name: str, made: bool) -> str:
    where = (
        "in data_dir, where gen-serve init puts it"
        if made
        else "in the environment, in secrets_dir, or in the settings file of the same path"
    )
    return f"this node has no {name}: it has to be {where} ({variable(name)})"
