"""What deployments are bound with: settings without their secrets, which each replica reads where it runs.

Only the sections that a deployment reads are bound, so that a change elsewhere does not restart it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import SecretStr, TypeAdapter

from serve_app.config import secrets
from serve_app.config.secrets import Found, NotHere, Places
from serve_app.config.settings import Settings

_WHERE: Final = "in the environment, in secrets_dir, or in the settings file of the same path"


@dataclass(frozen=True, slots=True)
class BoundSettings:
    told: str
    """The sections, in JSON."""
    found: tuple[tuple[str, bool], ...]
    """The secrets left out, by name, and whether the service made them itself."""
    places: Places

    @classmethod
    def of(cls, settings: Settings, sections: Collection[str]) -> BoundSettings:
        """Raises ValueError where a secret is set that a replica would not find again."""
        left_out: Any = {
            "redis": {"url"},
            "objects": {"options"},
            "sealing": {"keys"},
            "webhooks": {"keys"},
            "accounts": {"openid": {"client_secret"}},
            "metrics": {"token"},
        }
        told = settings.model_dump(mode="json", include=set(sections) | {"data_dir"}, exclude=left_out)
        if "objects" in told:
            told["objects"]["options"] = settings.objects.plain_options
        found = findable(settings, sections)
        return cls(json.dumps(told, sort_keys=True), found, settings.secret_places)

    def settings(self) -> Settings:
        """Whole again, as far as they were bound: another section is an AttributeError.

        Raises NotHere where this process finds a secret no more that was there when the application was built.
        """
        sections = json.loads(self.told)
        here = self.places.read()
        for name, made in self.found:
            _put(sections, name, _needed(here, name, made))
        kinds: dict[str, Any] = {name: field.annotation for name, field in Settings.model_fields.items()}
        values = {name: TypeAdapter(kinds[name]).validate_python(value) for name, value in sections.items()}
        whole = Settings.model_construct(**values)
        for name in set(kinds) - set(values):
            vars(whole).pop(name)
        return whole


@dataclass(frozen=True, slots=True)
class WithheldOptions:
    """Options of the object store that open it: called where they are needed, for those found there."""

    places: Places

    @classmethod
    def of(cls, settings: Settings) -> WithheldOptions | None:
        """None where no option is secret. Raises ValueError as `BoundSettings.of` does."""
        return cls(settings.secret_places) if findable(settings, ("objects",)) else None

    def __call__(self) -> Mapping[str, Any]:
        """Raises NotHere."""
        return _needed(self.places.read(), secrets.OBJECT_OPTIONS, made=False)


def complete(settings: Settings) -> Settings:
    """The same, with what the service made for itself in `data_dir`, where they name nothing else.

    Raises ValueError where there is neither.
    """
    here = settings.secret_places.read()
    if settings.redis.url is None:
        if secrets.REDIS_URL not in here:
            raise ValueError(
                f"redis.url is not set, and no embedded server runs on {settings.data_dir}: gen-serve up starts one; "
                f"elsewhere set {secrets.variable(secrets.REDIS_URL)}, on every node"
            )
        settings = settings.with_redis(here[secrets.REDIS_URL].value)
    if not settings.has_sealing_keys:
        if secrets.SEALING_KEYS not in here:
            raise ValueError(
                f"sealing.keys is empty, and {settings.data_dir} has none: gen-serve init makes one, "
                f"{secrets.variable(secrets.SEALING_KEYS)} names yours"
            )
        settings = settings.with_sealing_key(here[secrets.SEALING_KEYS].value[0])
    return settings


def values(settings: Settings, sections: Collection[str]) -> dict[str, Any]:
    """By name, the secrets of these sections that are set."""
    accounts = settings.accounts
    set_ones = {
        secrets.REDIS_URL: settings.redis.url,
        secrets.OBJECT_OPTIONS: settings.objects.secret_options,
        secrets.SEALING_KEYS: [key.get_secret_value() for key in settings.sealing.keys],
        secrets.CLIENT_SECRET: _plain(accounts.openid.client_secret) if accounts.openid else None,
    }
    return {name: value for name, value in set_ones.items() if value and name.partition(".")[0] in sections}


def findable(settings: Settings, sections: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """The secrets of these sections that are set, and whether each was made. Raises ValueError as `of` does."""
    wanted = values(settings, sections)
    here = settings.secret_places.read() if wanted else {}
    for name, value in wanted.items():
        if name not in here or here[name].value != value:
            raise ValueError(f"{name} is set, but no replica would find it: it has to be {_WHERE}")
    return tuple((name, here[name].made) for name in sorted(wanted))


def _needed(here: Mapping[str, Found], name: str, made: bool) -> Any:
    if name not in here or here[name].made != made:
        where = "in data_dir, where gen-serve init puts it" if made else _WHERE
        raise NotHere(f"this node has no {name}: it has to be {where} ({secrets.variable(name)})")
    return here[name].value


def _put(sections: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    section = sections
    for part in path:
        section = section[part]
    section[last] = {**section[last], **value} if name == secrets.OBJECT_OPTIONS else value


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
