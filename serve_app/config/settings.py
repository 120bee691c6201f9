"""All settings, from one YAML file; `configs/local.yaml` explains each of them.

Environment variables override the file: `GEN_SERVICE__PORT=9000` sets `service.port`. Files in `secrets_dir`, named as
the variables, come between the two. Unknown keys are refused, so a typing error never passes as a default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError
from pydantic_settings.sources.utils import parse_env_vars

from deployments.contract.strict_settings import StrictSettings
from deployments.contract.yaml_files import read_yaml
from serve_app.accounts.settings import AccountSettings
from serve_app.config.model_settings import ModelSettings, RewriterSettings, TextEncoderSettings
from serve_app.config.problems import DELIMITER, PREFIX, check_variables, located
from serve_app.config.sections import (
    DispatcherSettings,
    FinetuneSettings,
    LogSettings,
    MetricsSettings,
    OpenAISettings,
    RaySettings,
    ServiceSettings,
    TracingSettings,
    WebhookSettings,
    is_loopback,
)
from serve_app.encryption import AtRest, SealingSettings
from serve_app.inputs.settings import LinkSettings, NetworkSettings, ObjectSettings
from serve_app.moderation.settings import ModerationSettings
from serve_app.storage.connection import RedisSettings
from serve_app.tasks.limits import TaskSettings

_PACKAGED: Final = Path(__file__).parent / "files"
"""Profiles and catalogs of the package; in a checkout a link to `configs`."""


def setting_variable(name: str) -> str:
    """Returns the environment variable of a setting, such as `GEN_REDIS__URL`."""
    return f"{PREFIX}{name.upper().replace('.', DELIMITER)}"


def embedded_url_file(data_dir: Path) -> Path:
    """Returns the file in which the embedded server keeps its URL while it runs."""
    return data_dir / "redis" / "url"


def sealing_key_file(data_dir: Path) -> Path:
    return data_dir / "sealing-key"


class Settings(StrictSettings):
    """The whole service. `data_dir` is made absolute, so that replicas agree on it in any working folder.

    Settings hold secrets and refuse to be pickled, because Ray pickles the arguments of deployments;
    `config/replicas.py` makes a form without secrets.
    """

    model_config = ConfigDict(hide_input_in_errors=True, validate_default=True)

    data_dir: Path = Path(".gen")
    """Folder of everything that must survive: embedded Redis, results, local keys. Relative to the working folder."""
    secrets_dir: Path | None = None
    """Folder of secrets, one file each, named as its variable (GEN_REDIS__URL). Files override this file, the
    environment overrides both. null: none."""
    catalog: Path = Path("configs/catalog.yaml")
    """Endpoints, prices and models. configs/NAME falls back to the file of the package."""
    extends: Path | None = None
    """Settings file to read first; this one overrides it key by key. null: none."""
    gpu_gb: float | None = Field(default=None, gt=0)
    """Memory of a GPU, GB of 10^9 bytes, for gen-serve check. null: unknown."""
    service: ServiceSettings = ServiceSettings()
    """The HTTP API."""
    openai: OpenAISettings = OpenAISettings()
    """OpenAI's routes: /v1/images/generations, /v1/images/edits, /v1/videos, /v1/models."""
    metrics: MetricsSettings = MetricsSettings()
    """Prometheus metrics, on a port of their own: http://127.0.0.1:9464/metrics."""
    tracing: TracingSettings = TracingSettings()
    """OpenTelemetry traces, one per task from submission to webhook. Needs the extra otel."""
    logs: LogSettings = LogSettings()
    """Logs of replicas, in Ray's session folder."""
    redis: RedisSettings = RedisSettings()
    """The task store: Redis 7.0+ or Valkey."""
    objects: ObjectSettings = ObjectSettings()
    """The store of inputs and results."""
    links: LinkSettings = LinkSettings()
    """Signed links to results; every poll signs anew."""
    tasks: TaskSettings = TaskSettings()
    """Limits of tasks. Beyond max_queued, max_active and the rates, submissions get a 429."""
    accounts: AccountSettings = AccountSettings()
    """Organizations, members and sign-in."""
    finetunes: FinetuneSettings = FinetuneSettings()
    """Uploads of fine-tunes (LoRA)."""
    network: NetworkSettings = NetworkSettings()
    """Outgoing calls: webhooks, image URLs, the model hub, issuers, traces."""
    sealing: SealingSettings = SealingSettings()
    """Encryption of client data in Redis."""
    webhooks: WebhookSettings = WebhookSettings()
    """Webhook deliveries."""
    dispatcher: DispatcherSettings = DispatcherSettings()
    """Dispatchers lease tasks and run them on replicas."""
    models: dict[str, ModelSettings] = {}
    """Models of the catalog by name. A key that is left out or null keeps the catalog's value; the defaults below are
    for keys that neither sets."""
    text_encoders: dict[Annotated[str, Field(pattern="^[a-z0-9-]+$")], TextEncoderSettings] = {}
    """Text encoders shared by models, by a name for models' text_encoder: four Flux1 checkpoints then hold one T5 of 9
    GB. A model whose checkpoint has other encoder weights refuses to start."""
    rewriter: RewriterSettings = RewriterSettings()
    """Prompt rewriting."""
    moderation: ModerationSettings = ModerationSettings()
    """Moderation of requests before any work, and of results before anyone sees them. docs/moderation.md has
    its limits."""
    ray: RaySettings = RaySettings()
    """The Ray cluster."""

    _file: Path | None = PrivateAttr(default=None)

    @field_validator("data_dir", "secrets_dir")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().resolve()

    @field_validator("catalog")
    @classmethod
    def _find_catalog(cls, path: Path) -> Path:
        return find_file(path.expanduser()).resolve()

    @model_validator(mode="after")
    def _lease_outlives_downscale(self) -> Settings:
        for name, model in self.models.items():
            scaling = model.autoscaling_config
            is_fixed = model.min_replicas == model.max_replicas
            if not is_fixed and scaling.downscale_delay_s < 3 * self.tasks.lease_s:
                raise ValueError(
                    f"models.{name}.autoscaling_config.downscale_delay_s must be at least three times tasks.lease_s: "
                    "the demand of a dispatcher that died is back only after a lease"
                )
        return self

    @model_validator(mode="after")
    def _text_encoders_exist(self) -> Settings:
        for name, model in self.models.items():
            if model.text_encoder is not None and model.text_encoder not in self.text_encoders:
                names = ", ".join(self.text_encoders) or "there is none"
                raise ValueError(f"models.{name}.text_encoder: no {model.text_encoder!r} in text_encoders ({names})")
        return self

    @model_validator(mode="after")
    def _local_role_is_for_loopback(self) -> Settings:
        if self.accounts.local_role is not None and not is_loopback(self.service.host):
            raise ValueError(
                f"accounts.local_role must be null where service.host is not loopback: {self.service.host}"
            )
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("settings hold secrets, so they are never pickled; see serve_app/config/replicas.py")

    @property
    def file(self) -> Path | None:
        """Absolute path of the settings file; None without one."""
        return self._file

    @property
    def objects_url(self) -> str:
        return self.objects.url or (self.data_dir / "objects").as_uri()

    @property
    def redis_url(self) -> str:
        if self.redis.url is None:
            raise ValueError("redis.url is not set, and no embedded server was started")
        return self.redis.url

    @property
    def sealing_keys(self) -> list[str]:
        """The first key seals, all keys open."""
        if not self.has_sealing_keys:
            raise ValueError("sealing.keys is empty, and none was made")
        return [key.get_secret_value() for key in self.sealing.keys]

    @property
    def has_sealing_keys(self) -> bool:
        return bool(self.sealing.keys)

    def at_rest(self) -> AtRest:
        """Returns the encryption of client data. It seals nothing without keys."""
        return AtRest(self.sealing_keys if self.has_sealing_keys else (), sealing=self.sealing.at_rest)

    def model(self, name: str) -> ModelSettings:
        """Returns the settings of a model of the catalog; the defaults if it is not configured."""
        return self.models.get(name, ModelSettings())

    def with_redis(self, url: str) -> Settings:
        return self.model_copy(update={"redis": self.redis.model_copy(update={"url": url})})

    def with_sealing_key(self, key: str) -> Settings:
        """Returns a copy with `key` as the only sealing key."""
        sealing = self.sealing.model_copy(update={"keys": [SecretStr(key)]})
        return self.model_copy(update={"sealing": sealing})


def find_file(path: Path) -> Path:
    """Returns the path. If it is `configs/NAME` and not there, the file of the package takes its place."""
    packaged = _PACKAGED / path.name
    return packaged if path.parent == Path("configs") and not path.exists() and packaged.is_file() else path


def load(path: Path) -> Settings:
    """Reads the environment, `secrets_dir` and the file; earlier sources override later ones.

    Raises FileNotFoundError, or ValueError naming the key at fault.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no such config file: {path}")
    return load_here(path)


def load_here(path: Path | None) -> Settings:
    """Reads settings like `load`, but also without a file."""
    documents = _read_documents(path) if path is not None and path.is_file() else {}
    values: dict[str, Any] = {}
    for document in documents.values():
        values = _merge(values, document)
    name = os.environ.get(setting_variable("secrets_dir")) or values.get("secrets_dir")
    secrets = _secret_files(Path(name).expanduser()) if name else {}
    check_variables(Settings.model_fields, secrets)
    try:
        secret_values, variables = _SecretsSource(secrets)(), _VariablesSource()()
    except SettingsError as problem:
        raise ValueError(f"environment or secrets_dir: {problem.__cause__}") from None
    with located(list(documents), secrets):
        settings = Settings.model_validate(_merge(_merge(values, secret_values), variables))
    settings._file = path.resolve() if path else None
    return settings


def _read_documents(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[Path, dict[str, Any]]:
    """Returns the contents of a settings file, after those of the files that it `extends`."""
    document = read_yaml(path) or {}
    if not isinstance(document, dict):
        raise ValueError(f"{path}: settings are names and values, like `service: {{port: 8000}}`")
    if not (name := document.get("extends")):
        return {path: document}
    base = path.parent / name
    if base.resolve() in (chain := (*extended_by, path.resolve())):
        raise ValueError(f"{path}: extends: the file extends itself")
    if not base.is_file():
        raise FileNotFoundError(f"{path}: extends: no such config file: {base}")
    return {**_read_documents(base, chain), path: document}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns both mappings in one; `over` overrides `base` key by key, at any depth."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _secret_files(folder: Path) -> dict[str, Path]:
    """Returns the files of `secrets_dir` by variable. Raises ValueError if it is not a folder."""
    if not folder.is_dir():
        raise ValueError(f"secrets_dir: there is no such folder: {folder}")
    return {path.name: path for path in sorted(folder.glob(f"{PREFIX}*")) if path.is_file()}


class _VariablesSource(EnvSettingsSource):
    def __init__(self) -> None:
        # The source reads the fields alone, which every model has.
        super().__init__(
            cast(type[BaseSettings], Settings),
            env_prefix=PREFIX,
            env_nested_delimiter=DELIMITER,
            env_parse_none_str="null",
        )

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            message = f'the variable of {field_name} must be JSON, like ["a"] or {{"a": 1}}'
            raise ValueError(message) from None


class _SecretsSource(_VariablesSource):
    """Reads files in place of variables of the same names."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        super().__init__()

    def _load_env_vars(self) -> Mapping[str, str | None]:
        texts = {name: path.read_text().strip() for name, path in self._files.items()}
        return parse_env_vars(texts, self.case_sensitive)
