"""What replicas are bound with: settings without secrets, deployment versions, model specs.

Ray keeps what a deployment is bound with, its runtime environment too: pickled, in the controller's checkpoint and
whatever the cluster's state lies in, for everyone who may ask the cluster. So nothing of that may hold a secret. A
replica finds each secret in the first of these places that has it: the environment (`GEN_REDIS__URL`), a file of that
name in `secrets_dir`, the settings file at the path that the application was built from, and `data_dir`, where
`gen-serve init` and `gen-serve up` keep what they made: the embedded server's address, the key that seals.
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

from pydantic import BaseModel, SecretStr, TypeAdapter

from deployments.contract.model import (
    DIFFUSERS,
    DIFFUSION,
    ENGINE,
    SIMULATED,
    ModelConfig,
    ModelSpec,
    RewriterSpec,
    Trial,
)
from deployments.contract.moderation import ModeratorSpec
from serve_app.config import settings as all_settings
from serve_app.config.catalog import Catalog, RewriterModel
from serve_app.config.settings import Settings, embedded_url_file, sealing_key_file, setting_variable
from serve_app.moderation.settings import ModerationCatalog
from serve_app.schemas.custom import FORMS

REDIS_URL: Final = "redis.url"
OBJECT_OPTIONS: Final = "objects.options"
SEALING_KEYS: Final = "sealing.keys"
CLIENT_SECRET: Final = "accounts.openid.client_secret"
SECRETS: Final = (REDIS_URL, OBJECT_OPTIONS, SEALING_KEYS, CLIENT_SECRET)
"""All that deployments need."""
_SECRET_FIELDS: Final[Any] = {
    "redis": {"url"},
    "objects": {"options"},
    "sealing": {"keys"},
    "accounts": {"openid": {"client_secret"}},
    "metrics": {"token", "host"},
}
"""And what is for the process that serves the metrics alone: its token, and the host that is refused without it."""


class MissingSecret(ValueError):
    """A secret that a deployment was bound without is not to be found where it runs."""


@dataclass(frozen=True, slots=True)
class BoundSettings:
    public: str
    """All sections without their secrets, in JSON."""
    secrets: tuple[str, ...]
    """Those that were set, by name."""
    generated: tuple[str, ...]
    """Those of them that the service made itself, in `data_dir`: another service's are not taken for them."""
    file: Path | None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        public = settings.model_dump(mode="json", exclude=_SECRET_FIELDS)
        public["objects"]["options"] = settings.objects.plain_options
        # What a profile leaves out is the catalog's: it must not come back as set.
        unset = {name: model.model_dump(mode="json", exclude_unset=True) for name, model in settings.models.items()}
        public["models"] = unset
        values, generated = secret_values(settings), generated_secrets(settings.data_dir)
        own = tuple(name for name in values if generated.get(name) == values[name])
        return cls(json.dumps(public, sort_keys=True), tuple(values), own, settings.file)

    def settings(self) -> Settings:
        """Whole again. Raises MissingSecret where this process lacks a secret that the application was built with."""
        sections = json.loads(self.public)
        here, generated = (
            secret_values(all_settings.load_here(self.file)),
            generated_secrets(Path(sections["data_dir"])),
        )
        for name in self.secrets:
            value = (generated if name in self.generated else here).get(name)
            if value is None:
                raise MissingSecret(_missing(name, name in self.generated))
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
    def from_settings(cls, settings: Settings) -> Self | None:
        """None where no option is secret."""
        return cls(settings.file) if settings.objects.secret_options else None

    def __call__(self) -> Mapping[str, Any]:
        """Raises MissingSecret."""
        options = all_settings.load_here(self.file).objects.secret_options
        if not options:
            raise MissingSecret(_missing(OBJECT_OPTIONS, is_generated=False))
        return options


def complete(settings: Settings) -> Settings:
    """The same, with what the service made for itself in `data_dir`, where they name nothing else.

    Raises ValueError where there is neither.
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
    """The secrets that are set, by name."""
    openid = settings.accounts.openid
    secret = openid.client_secret if openid else None
    values = {
        REDIS_URL: settings.redis.url,
        OBJECT_OPTIONS: settings.objects.secret_options,
        SEALING_KEYS: [key.get_secret_value() for key in settings.sealing.keys],
        CLIENT_SECRET: secret.get_secret_value() if isinstance(secret, SecretStr) else None,
    }
    return {name: value for name, value in values.items() if value}


def find_redis_url(file: Path | None, data_dir: Path) -> str:
    """The address of the task store, where this process can find it. Raises MissingSecret."""
    url = secret_values(all_settings.load_here(file)).get(REDIS_URL) or generated_secrets(data_dir).get(REDIS_URL)
    if url is None:
        raise MissingSecret(_missing(REDIS_URL, is_generated=False))
    return str(url)


def generated_secrets(data_dir: Path) -> dict[str, Any]:
    """The secrets that the service made itself, by name."""
    url, key = (
        path.read_text().strip() if path.is_file() else ""
        for path in (embedded_url_file(data_dir), sealing_key_file(data_dir))
    )
    return {**({REDIS_URL: url} if url else {}), **({SEALING_KEYS: [key]} if key else {})}


def _missing(name: str, is_generated: bool) -> str:
    where = (
        "in data_dir, where gen-serve init puts it"
        if is_generated
        else "in the environment, in secrets_dir, or in the settings file of the same path"
    )
    return f"this node has no {name}: it has to be {where} ({setting_variable(name)})"


_DIGITS: Final = 16
_RAY_FIELDS: Final = {
    "service": ("num_replicas", "max_ongoing_requests", "ray_actor_options", "max_replicas_per_node", "proxies"),
    "webhooks": ("num_replicas", "ray_actor_options", "max_replicas_per_node"),
    "dispatcher": ("ray_actor_options", "max_replicas_per_node", "health_check_period_s"),
    "moderation": ("ray_actor_options", "max_replicas_per_node", "min_replicas", "max_replicas", "downscale_delay_s"),
    "metrics": ("port", "projects"),
}
_RAY_MODEL_FIELDS: Final = (
    "ray_actor_options",
    "max_replicas_per_node",
    "health_check_period_s",
    "health_check_timeout_s",
    "graceful_shutdown_timeout_s",
)
"""Of the settings, what says how Ray runs replicas, which decides by itself what of that takes new ones, and what no
replica reads."""


def installed_release() -> str:
    """The version of this package."""
    return installed("gen-serve")


def deployment_version(
    bound: object, reads: Collection[str], secrets: Mapping[str, Any], key: str | None, revision: str
) -> str:
    """Of a deployment that is bound with `bound` and reads these sections of the settings, and their secrets.

    The digest is made under `key`, the one that seals: whoever sees the version but does not have that key can't try
    guesses on the secrets. Without a key there is no service.
    """
    own = {name: value for name, value in secrets.items() if name.partition(".")[0] in reads}
    text = json.dumps([_document(bound, reads), own, revision], sort_keys=True)
    return (
        f"{installed_release()}-{hmac.new((key or '').encode(), text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]}"
    )


def _document(bound: object, reads: Collection[str]) -> Any:
    """What a deployment is bound with, in JSON's types. Other deployments, and what else has no fields, say nothing."""
    if isinstance(bound, BoundSettings):
        return _read_by_replicas(json.loads(bound.public), reads)
    if isinstance(bound, BaseModel):
        return {name: _document(value, reads) for name, value in bound}
    if is_dataclass(bound):
        return {each.name: _document(getattr(bound, each.name), reads) for each in fields(bound)}
    if isinstance(bound, Mapping):
        return {str(name): _document(value, reads) for name, value in bound.items()}
    if isinstance(bound, list | tuple):
        return [_document(value, reads) for value in bound]
    return bound if bound is None or isinstance(bound, str | int | float) else ""


def _read_by_replicas(settings: dict[str, Any], reads: Collection[str]) -> dict[str, Any]:
    """Without what only says how many of them there are, and where."""
    sections = {name: value for name, value in settings.items() if name in reads}
    for section, names in _RAY_FIELDS.items():
        for name in names:
            sections.get(section, {}).pop(name, None)
    for model in sections.get("models", {}).values():
        for name in _RAY_MODEL_FIELDS:
            model.pop(name, None)
        scaling, fixed = model.pop("autoscaling_config", {}), model.pop("num_replicas", None)
        if "dispatcher" in reads:  # which hands out as much as all replicas can take
            model["max_replicas"] = fixed or scaling.get("max_replicas")
    return sections


_ENGINE_SETTINGS: Final = {"backend", "engine", "fps", "max_running"}
"""Of a model's settings, those that are read where an inference server runs it."""


def model_spec(name: str, catalog: Catalog, settings: Settings, withheld: WithheldOptions | None) -> ModelSpec:
    """Raises ValueError for a text encoder, or guidance, where nothing reads prompts, and for an engine without address
    or with settings that it has itself."""
    model, profile = catalog.models[name], settings.model(name)
    config = model.config(profile)
    if (config.engine is not None) != (config.backend == ENGINE):
        raise ValueError(f"models.{name}.engine is needed for backend: engine, and for no other")
    if config.engine and (strange := config.model_fields_set - _ENGINE_SETTINGS):
        raise ValueError(f"models.{name}.{min(strange)} must be left out: an inference server has settings of its own")
    if (profile.text_encoder or config.cfg) and (
        config.backend != DIFFUSION or config.checkpoint.startswith(SIMULATED)
    ):
        reads_none = config.checkpoint if config.backend == DIFFUSION else config.backend
        field = "text_encoder" if profile.text_encoder else "cfg"
        raise ValueError(f"models.{name}.{field} must be null: {reads_none} reads no prompts")
    return ModelSpec(
        **dict(config.model_copy(update={"probe": _probe(name, catalog, config, profile.steps or model.steps)})),
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        tracing=settings.tracing.spec(),
        logs=settings.logs.spec(),
        proxy=settings.network.proxy,
    )


def _probe(name: str, catalog: Catalog, config: ModelConfig, steps: int | None) -> Trial | None:
    """Returns how the model proves itself: with its own steps, at the size that its first custom endpoint names. None
    for one without such endpoints or settings of pipelines, which a native family runs."""
    endpoints = [each.fields for each in catalog.endpoints.values() if name in each.models and each.request in FORMS]
    if config.backend not in (DIFFUSION, DIFFUSERS) or not (endpoints or config.is_generic):
        return config.probe
    side = next((fields.side for fields in endpoints if "side" in fields.model_fields_set), None)
    known = {"steps": steps, "width": side, "height": side}
    named = {name: value for name, value in known.items() if value is not None}
    return Trial.model_validate(named | (config.probe or Trial()).model_dump(exclude_unset=True))


def rewriter_tasks(model: RewriterModel | None, settings: Settings) -> frozenset[str]:
    """Returns what the rewriter does, by the names of `rewriter.asked_for`."""
    if model is None or not settings.rewriter.enabled:
        return frozenset()
    return frozenset(settings.rewriter.asked_for) - (frozenset() if model.edit_instruction else {"edits"})


def rewriter_spec(model: RewriterModel, settings: Settings) -> RewriterSpec:
    chosen = settings.rewriter
    return RewriterSpec(
        checkpoint=chosen.checkpoint or model.checkpoint,
        revision=None if chosen.checkpoint else model.revision,
        device=chosen.device,
        dtype=chosen.dtype,
        instruction=model.instruction,
        edit_instruction=model.edit_instruction,
        ratio_instruction=model.ratio_instruction,
        max_new_tokens=model.max_new_tokens,
        temperature=model.temperature,
        logs=settings.logs.spec(),
        proxy=settings.network.proxy,
    )


def moderator_spec(defaults: ModerationCatalog, settings: Settings, withheld: WithheldOptions | None) -> ModeratorSpec:
    chosen = settings.moderation
    return ModeratorSpec(
        text=tuple(classifier.spec() for classifier in chosen.text or defaults.text),
        images=tuple(classifier.spec() for classifier in chosen.images or defaults.images),
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        max_batch=chosen.max_batch,
        threads=chosen.threads,
        logs=settings.logs.spec(),
        proxy=settings.network.proxy,
    )
