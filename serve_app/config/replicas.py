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

from deployments.contract.model import DIFFUSION, SIMULATED, ModelSpec, RewriterSpec
from deployments.contract.moderation import ModeratorSpec
from serve_app.config import settings as all_settings
from serve_app.config.catalog import Model, RewriterModel
from serve_app.config.settings import Settings, embedded_url_file, sealing_key_file, setting_variable
from serve_app.moderation.settings import ModerationCatalog

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
                f"elsewhere set {setting_variable(REDIS_URL)}, on every node"
            )
        settings = settings.with_redis(made[REDIS_URL])
    if not settings.has_sealing_keys:
        if SEALING_KEYS not in made:
            raise ValueError(
                f"sealing.keys is empty, and {settings.data_dir} has none: gen-serve init makes one, "
                f"{setting_variable(SEALING_KEYS)} names yours"
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
    return f"this node has no {name}: it has to be {where} ({setting_variable(name)})"


_DIGITS: Final = 16
_FOR_RAY: Final = {
    "service": ("ingress_replicas", "max_ongoing_requests", "actor", "max_per_node", "proxies"),
    "webhooks": ("replicas", "actor", "max_per_node"),
    "dispatcher": ("actor", "max_per_node", "health_check_period_s"),
    "moderation": ("actor", "max_per_node", "min_replicas", "max_replicas", "downscale_delay_s"),
}
_FOR_RAY_OF_MODELS: Final = ("actor", "health_check_period_s", "health_check_timeout_s", "drain_s")
"""Of the settings, what says how Ray runs replicas. It decides by itself what of that takes new ones."""


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
    told = json.dumps([_document(bound, reads), own, revision], sort_keys=True)
    return (
        f"{installed_release()}-{hmac.new((key or '').encode(), told.encode(), hashlib.sha256).hexdigest()[:_DIGITS]}"
    )


def _document(bound: object, reads: Collection[str]) -> Any:
    """What a deployment is bound with, in JSON's types. Other deployments, and what else has no fields, say nothing."""
    if isinstance(bound, BoundSettings):
        return _read_by_replicas(json.loads(bound.public), reads)
    if isinstance(bound, BaseModel):
        return bound.model_dump(mode="json")
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
    for section, names in _FOR_RAY.items():
        for name in names:
            sections.get(section, {}).pop(name, None)
    for model in sections.get("models", {}).values():
        for name in _FOR_RAY_OF_MODELS:
            model.pop(name, None)
        scaling = model.pop("autoscaling", {})
        if "dispatcher" in reads:  # which hands out as much as all replicas can take
            model["max_replicas"] = scaling.get("max_replicas")
    return sections


_AS_SET: Final = frozenset(
    (
        "device",
        "dtype",
        "compile",
        "threads",
        "render_side",
        "enlarge",
        "channels_last",
        "tile_above",
        "preview_every",
        "preview_interval_s",
        "enhance_noise",
        "keyframe_crf",
        "max_running",
        "max_batch",
        "order",
        "step_goal_s",
        "step_limit_s",
    )
)
"""Of a model's settings, what it is told as it is."""


def model_spec(name: str, model: Model, settings: Settings, withheld: WithheldOptions | None) -> ModelSpec:
    """Raises ValueError for a text encoder, or guidance, where nothing reads prompts."""
    chosen = settings.model(name)
    backend, checkpoint = chosen.backend or model.backend, chosen.checkpoint or model.checkpoint
    if (chosen.text_encoder or chosen.cfg) and (backend != DIFFUSION or checkpoint.startswith(SIMULATED)):
        reads_none = checkpoint if backend == DIFFUSION else backend
        given = "text_encoder" if chosen.text_encoder else "cfg"
        raise ValueError(f"models.{name}.{given} must be null: {reads_none} reads no prompts")
    return ModelSpec(
        backend=backend,
        checkpoint=checkpoint,
        revision=None if chosen.checkpoint else model.revision,
        matting=(chosen.matting or model.matting).spec(),
        sharing=chosen.sharing.spec() if chosen.sharing else None,
        caches=chosen.caches.spec(),
        cfg=chosen.cfg.spec() if chosen.cfg else None,
        redux=None if chosen.checkpoint else model.redux,
        video_guidance=chosen.video_guidance.spec() if chosen.video_guidance else None,
        distilled=model.distilled if chosen.distilled is None else chosen.distilled,
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        attention=tuple(chosen.attention),
        packed_attention=tuple(chosen.packed_attention),
        tracing=settings.tracing.spec(),
        logs=settings.logs.spec(),
        **chosen.model_dump(include=set(_AS_SET)),
    )


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
    )


def moderator_spec(known: ModerationCatalog, settings: Settings, withheld: WithheldOptions | None) -> ModeratorSpec:
    chosen = settings.moderation
    return ModeratorSpec(
        text=tuple(classifier.spec() for classifier in chosen.text or known.text),
        pictures=tuple(classifier.spec() for classifier in chosen.pictures or known.pictures),
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        max_batch=chosen.max_batch,
        threads=chosen.threads,
        logs=settings.logs.spec(),
    )
