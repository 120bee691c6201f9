"""Arguments and versions of deployments: settings without secrets, which replicas complete where they run.

Ray pickles the arguments and the runtime environment of a deployment and shows them to everyone who can reach the
cluster, so neither may hold a secret. A replica finds each secret in the first of these places that has it: the
environment (`GEN_REDIS__URL`), a file of that name in `secrets_dir`, the settings file at the path that the application
was built from, and `data_dir`, where `gen-serve init` and `gen-serve up` keep the secrets that they make: the embedded
server's URL and the sealing key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel

from deployments.contract.strict_settings import NO_RESTART
from serve_app.config import settings as all_settings
from serve_app.config.model_settings import ModelSettings
from serve_app.config.settings import Settings, embedded_url_file, sealing_key_file, setting_variable

REDIS_URL: Final = "redis.url"
OBJECT_OPTIONS: Final = "objects.options"
SEALING_KEYS: Final = "sealing.keys"
CLIENT_SECRET: Final = "accounts.openid.client_secret"
SECRETS: Final = (REDIS_URL, OBJECT_OPTIONS, SEALING_KEYS, CLIENT_SECRET)
"""Secrets that deployments need."""
_NOT_BOUND: Final[Any] = {
    "redis": {"url"},
    "objects": {"options"},
    "sealing": {"keys"},
    "accounts": {"openid": {"client_secret"}},
    # For the process that serves the metrics alone; a host beyond loopback is invalid without the token.
    "metrics": {"token", "host"},
}


class MissingSecret(ValueError):
    """A replica can't find a secret that the application was built with."""


@dataclass(frozen=True, slots=True)
class BoundSettings:
    """Settings without secrets, as deployments are bound with them."""

    public: str
    """All sections without their secrets, in JSON."""
    secrets: tuple[str, ...]
    """Names of the secrets that were set."""
    generated: tuple[str, ...]
    """Names of those that the service made itself, in `data_dir`. Only these are looked for there."""
    file: Path | None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        public = settings.model_dump(mode="json", exclude=_NOT_BOUND)
        public["objects"]["options"] = settings.objects.plain_options
        # A key that a profile leaves to the catalog must not come back as set.
        unset = {name: model.model_dump(mode="json", exclude_unset=True) for name, model in settings.models.items()}
        public["models"] = unset
        values, generated = secret_values(settings), generated_secrets(settings.data_dir)
        own = tuple(name for name in values if generated.get(name) == values[name])
        return cls(json.dumps(public, sort_keys=True), tuple(values), own, settings.file)

    def settings(self) -> Settings:
        """Returns the settings with their secrets. Raises MissingSecret if this process can't find one."""
        sections = json.loads(self.public)
        here = secret_values(all_settings.load_here(self.file))
        generated = generated_secrets(Path(sections["data_dir"]))
        for name in self.secrets:
            value = (generated if name in self.generated else here).get(name)
            if value is None:
                raise MissingSecret(_missing(name, is_generated=name in self.generated))
            *path, last = name.split(".")
            section = sections
            for part in path:
                section = section[part]
            section[last] = {**section[last], **value} if name == OBJECT_OPTIONS else value
        return Settings.model_validate(sections)


@dataclass(frozen=True, slots=True)
class WithheldOptions:
    """Reads the secret options of the object store in the process that needs them."""

    file: Path | None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        """Returns None if no option is secret."""
        return cls(settings.file) if settings.objects.secret_options else None

    def __call__(self) -> Mapping[str, Any]:
        """Raises MissingSecret."""
        options = all_settings.load_here(self.file).objects.secret_options
        if not options:
            raise MissingSecret(_missing(OBJECT_OPTIONS, is_generated=False))
        return options


def complete(settings: Settings) -> Settings:
    """Adds the secrets that the service made in `data_dir` where the settings name none.

    Raises ValueError if a required secret is in neither.
    """
    generated = generated_secrets(settings.data_dir)
    if settings.redis.url is None:
        if REDIS_URL not in generated:
            raise ValueError(
                f"redis.url is not set, and no embedded server runs on {settings.data_dir}: gen-serve up starts one; "
                f"elsewhere set {setting_variable(REDIS_URL)}, on every node"
            )
        settings = settings.with_redis(generated[REDIS_URL])
    if not settings.has_sealing_keys:
        if SEALING_KEYS not in generated:
            raise ValueError(
                f"sealing.keys is empty, and {settings.data_dir} has none: gen-serve init makes one, "
                f"{setting_variable(SEALING_KEYS)} names yours"
            )
        settings = settings.with_sealing_key(generated[SEALING_KEYS][0])
    return settings


def secret_values(settings: Settings) -> dict[str, Any]:
    """Returns the secrets that are set, by name."""
    secret = settings.accounts.openid.client_secret if settings.accounts.openid else None
    values = {
        REDIS_URL: settings.redis.url,
        OBJECT_OPTIONS: settings.objects.secret_options,
        SEALING_KEYS: [key.get_secret_value() for key in settings.sealing.keys],
        CLIENT_SECRET: secret.get_secret_value() if secret else None,
    }
    return {name: value for name, value in values.items() if value}


def find_redis_url(file: Path | None, data_dir: Path) -> str:
    """Returns the URL of the task store, as this process finds it. Raises MissingSecret."""
    url = secret_values(all_settings.load_here(file)).get(REDIS_URL) or generated_secrets(data_dir).get(REDIS_URL)
    if url is None:
        raise MissingSecret(_missing(REDIS_URL, is_generated=False))
    return str(url)


def generated_secrets(data_dir: Path) -> dict[str, Any]:
    """Returns the secrets that the service made itself, by name."""
    url, key = (
        path.read_text().strip() if path.is_file() else ""
        for path in (embedded_url_file(data_dir), sealing_key_file(data_dir))
    )
    return {**({REDIS_URL: url} if url else {}), **({SEALING_KEYS: [key]} if key else {})}


def _missing(name: str, *, is_generated: bool) -> str:
    where = (
        "in data_dir, where gen-serve init puts it"
        if is_generated
        else "in the environment, in secrets_dir, or in the settings file of the same path"
    )
    return f"this node has no {name}: it has to be {where} ({setting_variable(name)})"


_DIGITS: Final = 16


def installed_release() -> str:
    """Returns the version of this package."""
    return installed("gen-serve")


def deployment_version(
    bound: object, reads: Collection[str], secrets: Mapping[str, Any], key: str | None, revision: str
) -> str:
    """Returns a version that changes with the arguments `bound`, and with the sections that the deployment `reads`.

    Secrets of these sections are part of the digest. Its key is the sealing key: without that, a version can't be used
    to test guesses of a secret.
    """
    own = {name: value for name, value in secrets.items() if name.partition(".")[0] in reads}
    text = json.dumps([_document(bound, reads), own, revision], sort_keys=True)
    digest = hmac.new((key or "").encode(), text.encode(), hashlib.sha256).hexdigest()
    return f"{installed_release()}-{digest[:_DIGITS]}"


def _document(bound: object, reads: Collection[str]) -> Any:
    """Returns an argument of a deployment as JSON; other deployments and opaque objects become an empty string."""
    if isinstance(bound, BoundSettings):
        return _restarting(json.loads(bound.public), reads)
    if isinstance(bound, BaseModel):
        return {name: _document(value, reads) for name, value in bound}
    if is_dataclass(bound):
        return {each.name: _document(getattr(bound, each.name), reads) for each in fields(bound)}
    if isinstance(bound, Mapping):
        return {str(name): _document(value, reads) for name, value in bound.items()}
    if isinstance(bound, list | tuple):
        return [_document(value, reads) for value in bound]
    return bound if bound is None or isinstance(bound, str | int | float) else ""


def _restarting(settings: dict[str, Any], reads: Collection[str]) -> dict[str, Any]:
    """Returns the settings whose change restarts replicas that read these sections."""
    sections: dict[str, Any] = {}
    for name in settings.keys() & set(reads):
        model: Any = Settings.model_fields[name].annotation
        is_section = isinstance(model, type) and issubclass(model, BaseModel)
        sections[name] = _without_options(model, settings[name]) if is_section else settings[name]
    for name, model in sections.get("models", {}).items():
        own = _without_options(ModelSettings, model)
        scaling, fixed = own.pop("autoscaling_config", {}), own.pop("num_replicas", None)
        if "dispatcher" in reads:  # dispatchers lease as many tasks as all replicas can take
            own["max_replicas"] = fixed or scaling.get("max_replicas")
        sections["models"][name] = own
    return sections


def _without_options(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if NO_RESTART not in model.model_fields[name].metadata}
