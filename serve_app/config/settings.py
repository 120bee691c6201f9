"""All settings, from one YAML file; `configs/local.yaml` explains each with its default.

A section stands with the room that it is for, or here, where that room reads all settings itself.

Environment variables override the file: `GEN_SERVICE__PORT=9000` sets `service.port`; between the two stand the files
of `secrets_dir`, named as the variables. Unknown keys are refused, so a typing error never passes as a default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, IPvAnyNetwork, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from pydantic_settings.sources.utils import parse_env_vars

from deployments.contract.strict_settings import RayActorOptions, Shape, StrictSettings, check_names
from deployments.contract.yaml_files import read_yaml
from deployments.telemetry.logs import Format, LogSpec, check_level
from deployments.telemetry.tracing import TracingSpec
from serve_app.accounts.settings import AccountSettings
from serve_app.config.model_settings import ModelSettings, RewriterSettings, TextEncoderSettings
from serve_app.config.problems import PREFIX, check_variables, located
from serve_app.encryption import AtRest, SealingSettings
from serve_app.inputs.settings import LinkSettings, NetworkSettings, ObjectSettings
from serve_app.moderation.settings import ModerationSettings
from serve_app.storage.connection import RedisSettings
from serve_app.tasks.limits import TaskSettings

_PACKAGED: Final = Path(__file__).parent / "files"
"""Profiles and catalogs that came with the package; in a checkout a link to `configs`."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it: `localhost`, 127.0.0.0/8, `::1`."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Whether it means all interfaces."""
    return host in ("0.0.0.0", "::")


def reachable(host: str) -> str:
    """The host of a URL by which this machine reaches what listens on `host`."""
    if is_unspecified(host):
        return "[::1]" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


class TracingSettings(StrictSettings):
    endpoint: (
        Annotated[str, Shape(r"^https?://[^/?#]+/", "must be a URL with a path, like http://collector:4318/v1/traces")]
        | None
    ) = None
    sample: float = Field(default=1.0, ge=0, le=1)

    def spec(self) -> TracingSpec | None:
        """None: nothing is traced."""
        return None if self.endpoint is None else TracingSpec(self.endpoint, self.sample)


class LogSettings(StrictSettings):
    format: Format = "text"
    levels: dict[str, str] = {}

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: dict[str, str]) -> dict[str, str]:
        for module, level in levels.items():
            check_level(module, level)
        return levels

    def spec(self) -> LogSpec:
        return LogSpec(self.format, self.levels)


class MetricsSettings(StrictSettings):
    host: str = "127.0.0.1"
    port: int | None = Field(default=9464, ge=1, le=65535)
    token: SecretStr | None = None
    projects: int = Field(default=50, ge=0, le=1000)
    grafana_url: (
        Annotated[str, Shape(r"^https?://[^/?#]", "must be a URL, like https://grafana.example.com")] | None
    ) = None

    @model_validator(mode="after")
    def _not_for_everyone(self) -> MetricsSettings:
        if not is_loopback(self.host) and not (self.token and self.token.get_secret_value()):
            raise ValueError(f"token must be set where host is not loopback, but {self.host}")
        return self


def setting_variable(name: str) -> str:
    """Of a setting, what the environment calls it: `GEN_REDIS__URL`."""
    return f"{PREFIX}{name.upper().replace('.', '__')}"


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
        files = {name: path.read_text().strip() for name, path in secret_files(self._folder).items()}
        return parse_env_vars(files, self.case_sensitive)


def secret_files(folder: Path) -> dict[str, Path]:
    """The files of `secrets_dir` by the variables that they stand for. Raises ValueError where it is no folder."""
    if not folder.is_dir():
        raise ValueError(f"secrets_dir: there is no such folder: {folder}")
    return {path.name: path for path in sorted(folder.glob(f"{PREFIX}*")) if path.is_file()}


class SettingsFiles(YamlConfigSettingsSource):
    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return _read_document(file_path)


def settings_files(config: Path | None) -> list[Path]:
    """A settings file after the one that it `extends`; those that are there. Raises ValueError as `read_yaml`."""
    if config is None or not config.is_file():
        return []
    base = _read_document(config).get("extends")
    return [*(settings_files(config.parent / base) if base else ()), config]


def order_sources(
    settings_cls: type[BaseSettings],
    environment: PydanticBaseSettingsSource,
    config: Sequence[Path],
    secrets_dir: Path | None,
) -> tuple[PydanticBaseSettingsSource, ...]:
    """The sources of settings; of the settings files a later one goes before."""
    files = () if secrets_dir is None else (SecretFiles(settings_cls, secrets_dir),)
    yaml_sources = [SettingsFiles(settings_cls, yaml_file=list(config), deep_merge=True)] if config else ()
    return (environment, *files, *yaml_sources)


LOOPBACK_ORIGINS: Final = "loopback"
"""In place of an origin: every page that this machine serves itself, at any port."""
_Origin = Annotated[
    str,
    Shape(
        rf"^({LOOPBACK_ORIGINS}|https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{{1,5}})?)$",
        f"must be an origin in lower case, like https://app.example.com, or {LOOPBACK_ORIGINS}",
    ),
]
_PublicUrl = Annotated[
    str,
    Shape(
        r"^https?://[^/?#]+/?$",
        "must be a scheme and a host without a path, like https://media.example.com: the service answers at the root "
        "of its host, so give it a host name of its own, not a path of another site",
    ),
]
_HostName = Annotated[
    str,
    Shape(
        r"^([a-z0-9._-]+|\[[0-9a-f:.]+\])$",
        "must be a host name or an address in lower case, without scheme, port and path, like media.example.com",
    ),
]


class ServiceSettings(StrictSettings):
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    public_url: _PublicUrl | None = None
    allowed_hosts: list[_HostName] = []
    trusted_proxies: list[IPvAnyNetwork] = []
    cors_origins: list[_Origin] = []
    max_body_mb: int = Field(default=288, ge=1)
    max_inflight_mb: int = Field(default=1024, ge=1)
    max_body_s: float = Field(default=900.0, gt=0)
    decoders: int | None = Field(default=None, ge=1)
    basic_status_clients: list[str] = ["ai-sdk/", "bfl-python/"]
    num_replicas: int = Field(default=1, ge=1)
    max_ongoing_requests: int = Field(default=4000, ge=1)
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: int | None = Field(default=None, ge=1, le=100)
    proxies: Literal["head", "every_node"] = "every_node"
    path_aliases: list[Annotated[str, Field(pattern="^[a-z0-9]+$")]] = []
    region: str | None = None
    regions: dict[str, Annotated[str, Shape("^https?://", "must be a URL, like https://us.example.com")]] = {}

    @model_validator(mode="after")
    def _largest_body_has_room(self) -> ServiceSettings:
        if self.max_inflight_mb < self.max_body_mb:
            raise ValueError(f"max_inflight_mb must be at least max_body_mb, which is {self.max_body_mb}")
        return self

    @model_validator(mode="after")
    def _strangers_have_an_address(self) -> ServiceSettings:
        if not is_loopback(self.host) and self.public_url is None and not self.allowed_hosts:
            raise ValueError(
                f"public_url must be set where host is not loopback, but {self.host}: the address that clients use, "
                "like https://media.example.com or http://192.168.1.5:8000; or allowed_hosts, if they use several"
            )
        return self

    @model_validator(mode="after")
    def _region_has_an_address(self) -> ServiceSettings:
        if self.region is not None and self.region not in self.regions:
            raise ValueError(f"region {self.region!r} must be one of regions")
        return self


class OpenAISettings(StrictSettings):
    image_model: str | None = None
    video_model: str | None = None
    wait_s: float = Field(default=150.0, gt=0, le=170)
    """Less than the proxy waits for an answer."""


class FinetuneSettings(StrictSettings):
    max_mb: int = Field(default=1024, ge=1)
    max_per_project: int = Field(default=100, ge=1)
    max_parallel: int = Field(default=8, ge=2)
    receive_s: float = Field(default=3600.0, gt=0)
    min_kb_per_s: float = Field(default=64.0, gt=0)
    check_s: int = Field(default=60, ge=1)


class WebhookSettings(StrictSettings):
    signature_headers: list[Annotated[str, Field(pattern="^[A-Za-z0-9-]+$")]] = ["X-Webhook-Signature"]
    num_replicas: int = Field(default=1, ge=1)
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: int | None = Field(default=None, ge=1, le=100)
    schedule_s: tuple[Annotated[float, Field(gt=0)], ...] = (5, 30, 120, 600, 3600, 6 * 3600, 24 * 3600)
    jitter: float = Field(default=0.1, ge=0, le=1)
    timeout_s: float = Field(default=15.0, gt=0)
    claim_s: float = Field(default=10.0, ge=1)
    concurrency: int = Field(default=256, ge=1)
    per_destination: int = Field(default=8, ge=1)
    per_organization: int = Field(default=128, ge=1)
    failure_threshold: int = Field(default=10, ge=1)
    circuit_open_s: float = Field(default=30.0, gt=0)
    max_circuit_open_s: float = Field(default=600.0, gt=0)


class DispatcherSettings(StrictSettings):
    num_replicas: int = Field(default=2, ge=1)
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: int | None = Field(default=None, ge=1, le=100)
    headroom: int = Field(default=4, ge=1)
    max_preparing: int = Field(default=256, ge=1)
    start_s: float = Field(default=600.0, gt=0)
    stall_s: float = Field(default=10.0, gt=1)
    drain_s: float = Field(default=30.0, ge=0)
    health_check_period_s: float = Field(default=2.0, gt=0)


class RaySettings(StrictSettings):
    address: str | None = None
    num_cpus: int | None = Field(default=None, ge=1)
    object_store_mb: int = Field(default=100, ge=80)


class Settings(BaseSettings):
    """The whole service. `data_dir` is made absolute, so that replicas agree on it whatever their working folder.

    They hold secrets, so they can't be pickled, which is what Ray does with all that a deployment is bound with:
    `replicas.py` makes of them what can.
    """

    model_config = SettingsConfigDict(
        extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, hide_input_in_errors=True
    )

    data_dir: Path = Path(".gen")
    secrets_dir: Path | None = None
    catalog: Path = Path("configs/catalog.yaml")
    extends: Path | None = None
    gpu_gb: float | None = Field(default=None, gt=0)
    service: ServiceSettings = ServiceSettings()
    openai: OpenAISettings = OpenAISettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    logs: LogSettings = LogSettings()
    redis: RedisSettings = RedisSettings()
    objects: ObjectSettings = ObjectSettings()
    links: LinkSettings = LinkSettings()
    tasks: TaskSettings = TaskSettings()
    accounts: AccountSettings = AccountSettings()
    finetunes: FinetuneSettings = FinetuneSettings()
    network: NetworkSettings = NetworkSettings()
    sealing: SealingSettings = SealingSettings()
    webhooks: WebhookSettings = WebhookSettings()
    dispatcher: DispatcherSettings = DispatcherSettings()
    models: dict[str, ModelSettings] = {}
    text_encoders: dict[Annotated[str, Field(pattern="^[a-z0-9-]+$")], TextEncoderSettings] = {}
    rewriter: RewriterSettings = RewriterSettings()
    moderation: ModerationSettings = ModerationSettings()
    ray: RaySettings = RaySettings()

    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, values: Any) -> Any:
        return check_names(values, cls.model_fields)

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
    def _text_encoders_are_there(self) -> Settings:
        for name, model in self.models.items():
            if model.text_encoder is not None and model.text_encoder not in self.text_encoders:
                names = ", ".join(self.text_encoders) or "there is none"
                raise ValueError(f"models.{name}.text_encoder: no {model.text_encoder!r} in text_encoders ({names})")
        return self

    @model_validator(mode="after")
    def _only_local_ones_need_no_sign_in(self) -> Settings:
        if self.accounts.local_role is not None and not is_loopback(self.service.host):
            raise ValueError(
                f"accounts.local_role must be null where service.host is not loopback: {self.service.host}"
            )
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("settings hold secrets, so they are never pickled; see serve_app/config/replicas.py")

    @property
    def file(self) -> Path | None:
        """Absolute; None for settings that were read from none."""
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
        """The first seals, all open."""
        if not self.has_sealing_keys:
            raise ValueError("sealing.keys is empty, and none was made")
        return [key.get_secret_value() for key in self.sealing.keys]

    @property
    def has_sealing_keys(self) -> bool:
        return bool(self.sealing.keys)

    def at_rest(self) -> AtRest:
        """How what clients wrote is stored. Without keys nothing is sealed."""
        return AtRest(self.sealing_keys if self.has_sealing_keys else (), sealing=self.sealing.at_rest)

    def model(self, name: str) -> ModelSettings:
        """The settings of a model of the catalog; one that is not configured has the defaults."""
        return self.models.get(name, ModelSettings())

    def with_redis(self, url: str) -> Settings:
        """The same settings on the server at `url`."""
        return self.model_copy(update={"redis": self.redis.model_copy(update={"url": url})})

    def with_sealing_key(self, key: str) -> Settings:
        """The same settings with this key alone."""
        sealing = self.sealing.model_copy(update={"keys": [SecretStr(key)]})
        return self.model_copy(update={"sealing": sealing})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings


def find_file(path: Path) -> Path:
    """The path; in place of `configs/NAME`, where no such file is here, the one that came with the package."""
    packaged = _PACKAGED / path.name
    return packaged if path.parent == Path("configs") and not path.exists() and packaged.is_file() else path


def load(path: Path) -> Settings:
    """Reads the environment, then `secrets_dir`, then the file. Raises FileNotFoundError, or ValueError naming the key
    at fault."""
    if not path.is_file():
        raise FileNotFoundError(f"no such config file: {path}")
    return load_here(path)


def load_here(path: Path | None) -> Settings:
    """As `load`, but a file that is not there says nothing."""
    document = _read_document(path) if path is not None and path.is_file() else {}
    if path is not None and (base := document.get("extends")) and not (path.parent / base).is_file():
        raise FileNotFoundError(f"{path}: extends: no such config file: {path.parent / base}")
    name = os.environ.get(setting_variable("secrets_dir")) or document.get("secrets_dir")
    folder, files = Path(name).expanduser() if name else None, settings_files(path)
    secrets = secret_files(folder) if folder else {}
    check_variables(Settings.model_fields, secrets)

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return order_sources(settings_cls, env_settings, files, folder)

    # As plain Settings again: the class above is local.
    with located(files, secrets):
        settings = Settings.model_construct(**dict(FromFile()))
    settings._file = path.resolve() if path else None
    return settings


def _read_document(path: Path) -> dict[str, Any]:
    document = read_yaml(path) or {}
    if not isinstance(document, dict):
        raise ValueError(f"{path}: settings are names and values, like `service: {{port: 8000}}`")
    return document
