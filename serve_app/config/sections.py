"""Sections of the settings that belong to the service as a whole: addresses, telemetry, replicas, webhooks.

The other sections are in the packages that read them.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import Field, IPvAnyNetwork, SecretStr, field_validator, model_validator

from deployments.contract.strict_settings import (
    NO_RESTART,
    MaxReplicasPerNode,
    RayActorOptions,
    Shape,
    StrictSettings,
)
from deployments.telemetry.logs import Format, LogSpec, check_level
from deployments.telemetry.tracing import TracingSpec


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches `host`: `localhost`, 127.0.0.0/8 or `::1`."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Returns whether `host` stands for all interfaces."""
    return host in ("0.0.0.0", "::")


def reachable(host: str) -> str:
    """Returns the host of a URL by which this machine reaches a server that listens on `host`."""
    if is_unspecified(host):
        return "[::1]" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


LOOPBACK_ORIGINS: Final = "loopback"
"""Stands for every origin on this machine, at any port."""
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
    """Address to listen on. 0.0.0.0 opens the service to the network and requires public_url or allowed_hosts."""
    port: int = Field(default=8000, ge=1, le=65535)
    """TCP port for clients."""
    public_url: _PublicUrl | None = None
    """URL that clients use, such as https://media.example.com. null: the origin of each request."""
    allowed_hosts: list[_HostName] = []
    """Further host names or addresses to answer under, without port. Other hosts get a 421."""
    trusted_proxies: list[IPvAnyNetwork] = []
    """Networks whose X-Forwarded-Proto and X-Forwarded-Host count. Behind a proxy of your own: 127.0.0.0/8, where
    HAProxy runs; let only that proxy reach the port."""
    cors_origins: list[_Origin] = []
    """Origins of pages whose scripts may call the API. loopback: all of this machine, at any port."""
    max_body_mb: int = Field(default=288, ge=1)
    """Largest request body, MiB. Ten 20 MB images in base64 are 267 MB."""
    max_inflight_mb: int = Field(default=1024, ge=1)
    """Bodies over 64 KiB and downloads in an ingress replica, MiB; more get a 503. Memory can reach three times that.
    At least max_body_mb."""
    max_body_s: float = Field(default=900.0, gt=0)
    """Seconds in which a body must arrive; else 408."""
    decoders: int | None = Field(default=None, ge=1)
    """Image decoding processes of an ingress replica; one organization gets at most half. null: cores - 1, from 2 to
    4."""
    basic_status_clients: list[str] = ["ai-sdk/", "bfl-python/"]
    """User-Agent substrings of clients that see Reasoning and Generating as Pending. See also gen-serve projects set
    NAME --statuses basic."""
    num_replicas: Annotated[int, NO_RESTART] = Field(default=1, ge=1)
    """Ingress replicas."""
    max_ongoing_requests: Annotated[int, NO_RESTART] = Field(default=4000, ge=1)
    """Concurrent requests of an ingress replica; at most three quarters are waiting polls and event streams."""
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: MaxReplicasPerNode = None
    proxies: Annotated[Literal["head", "every_node"], NO_RESTART] = "every_node"
    """Nodes that accept requests, where Serve does not run yet: the head, or all with a replica."""
    path_aliases: list[Annotated[str, Field(pattern="^[a-z0-9]+$")]] = []
    """Other family names in paths: [flux] maps /v1/flux-kontext-pro to /v1/gen-kontext-pro."""
    region: str | None = None
    """Region of this service. Endpoints of other regions get a 404 that names their URLs. null: no regions."""
    regions: dict[str, Annotated[str, Shape("^https?://", "must be a URL, like https://us.example.com")]] = {}
    """Base URL of each region: {us: "https://us.example.com"}."""

    @model_validator(mode="after")
    def _largest_body_fits(self) -> ServiceSettings:
        if self.max_inflight_mb < self.max_body_mb:
            raise ValueError(f"max_inflight_mb must be at least max_body_mb, which is {self.max_body_mb}")
        return self

    @model_validator(mode="after")
    def _network_clients_have_an_address(self) -> ServiceSettings:
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
    """Endpoint for image requests without model. null, or if it can't edit: the first of the catalog that can."""
    video_model: str | None = None
    """Endpoint for video requests without model. null: the first of the catalog."""
    wait_s: float = Field(default=150.0, gt=0, le=170)
    """Seconds that a request waits for its images. Then it gets a 504, and the task goes on."""


class MetricsSettings(StrictSettings):
    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback, token is required."""
    port: Annotated[int | None, NO_RESTART] = Field(default=9464, ge=1, le=65535)
    """TCP port of /metrics, in the process that starts the service. null: no metrics."""
    token: SecretStr | None = None
    """Bearer token that scrapers send; better in GEN_METRICS__TOKEN. null: not required."""
    projects: Annotated[int, NO_RESTART] = Field(default=50, ge=0, le=1000)
    """Projects with series of their own: those with most use and highest cost. 0: none."""
    grafana_url: (
        Annotated[str, Shape(r"^https?://[^/?#]", "must be a URL, like https://grafana.example.com")] | None
    ) = None
    """Dashboard that the fleet page links to, such as https://grafana.example.com/d/gen-serve-fleet. null: no link."""

    @model_validator(mode="after")
    def _network_needs_a_token(self) -> MetricsSettings:
        if not is_loopback(self.host) and not (self.token and self.token.get_secret_value()):
            raise ValueError(f"token must be set where host is not loopback, but {self.host}")
        return self


class TracingSettings(StrictSettings):
    endpoint: (
        Annotated[str, Shape(r"^https?://[^/?#]+/", "must be a URL with a path, like http://collector:4318/v1/traces")]
        | None
    ) = None
    """OTLP/HTTP collector, such as http://collector:4318/v1/traces. Credentials: OTEL_EXPORTER_OTLP_HEADERS. null: no
    tracing."""
    sample: float = Field(default=1.0, ge=0, le=1)
    """Share of traces to record; a client's traceparent decides for its own."""

    def spec(self) -> TracingSpec | None:
        """Returns None if tracing is off."""
        return None if self.endpoint is None else TracingSpec(self.endpoint, self.sample)


class LogSettings(StrictSettings):
    format: Format = "text"
    """Format of replicas' logs. json: one object a line, with task, project, model, attempt and trace."""
    levels: dict[str, str] = {}
    """Level (debug, info, warning, error or critical) of a module and all below it, as {serve_app.dispatcher: debug};
    others log at info. At run time: gen-serve logs level."""

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: dict[str, str]) -> dict[str, str]:
        for module, level in levels.items():
            check_level(module, level)
        return levels

    def spec(self) -> LogSpec:
        return LogSpec(self.format, self.levels)


class FinetuneSettings(StrictSettings):
    max_mb: int = Field(default=1024, ge=1)
    """Largest upload, MiB."""
    max_per_project: int = Field(default=100, ge=1)
    """Fine-tunes of a project."""
    max_parallel: int = Field(default=8, ge=2)
    """Concurrent uploads of an ingress replica, as temporary files: one per project, half per organization; more get a
    429."""
    receive_s: float = Field(default=3600.0, gt=0)
    """Seconds in which an upload must be complete; else 408."""
    min_kb_per_s: float = Field(default=64.0, gt=0)
    """Lowest upload speed, KiB a second; slower ones get a 408."""
    check_s: int = Field(default=60, ge=1)
    """CPU seconds that the check of a file may take."""


class WebhookSettings(StrictSettings):
    signature_headers: list[Annotated[str, Field(pattern="^[A-Za-z0-9-]+$")]] = ["X-Webhook-Signature"]
    """Headers with sha256=<HMAC of the body>, beside those of Standard Webhooks."""
    num_replicas: Annotated[int, NO_RESTART] = Field(default=1, ge=1)
    """Sender replicas."""
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: MaxReplicasPerNode = None
    schedule_s: tuple[Annotated[float, Field(gt=0)], ...] = (5, 30, 120, 600, 3600, 6 * 3600, 24 * 3600)
    """Seconds before each retry. A delivery fails when the last retry fails."""
    jitter: float = Field(default=0.1, ge=0, le=1)
    """Largest share by which these waits vary."""
    timeout_s: float = Field(default=15.0, gt=0)
    """Seconds for a destination to accept the connection and answer."""
    claim_s: float = Field(default=10.0, ge=1)
    """Seconds before another sender takes over the deliveries of a silent one."""
    concurrency: int = Field(default=256, ge=1)
    """Concurrent calls of a sender."""
    per_destination: int = Field(default=8, ge=1)
    """Concurrent calls of an organization to one scheme, host and port at first; it adapts to the responses."""
    per_organization: int = Field(default=128, ge=1)
    """Concurrent calls of an organization to all destinations."""
    failure_threshold: int = Field(default=10, ge=1)
    """Failures in a row after which a destination is paused."""
    circuit_open_s: float = Field(default=30.0, gt=0)
    """Seconds of the first pause. One call at a time then probes the destination, and each failure doubles the
    pause."""
    max_circuit_open_s: float = Field(default=600.0, gt=0)
    """Longest pause, seconds."""


class DispatcherSettings(StrictSettings):
    num_replicas: int = Field(default=2, ge=1)
    """Dispatcher replicas. Two survive the loss of one."""
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: MaxReplicasPerNode = None
    headroom: int = Field(default=4, ge=1)
    """Tasks sent to replicas before these start them; they go before later tasks of other projects. More fills many
    replicas sooner, and scales up no faster."""
    max_preparing: int = Field(default=256, ge=1)
    """Tasks moderated and rewritten ahead. For 200 tasks a second and a moderator that takes a second: 200."""
    start_s: float = Field(default=600.0, gt=0)
    """Seconds for a replica to start a task, loading included."""
    stall_s: float = Field(default=10.0, gt=1)
    """Seconds of silence after which a replica counts as lost."""
    drain_s: float = Field(default=30.0, ge=0)
    """Seconds that a stopping dispatcher waits for running tasks."""
    health_check_period_s: Annotated[float, NO_RESTART] = Field(default=2.0, gt=0)
    """Seconds between health checks."""


class RaySettings(StrictSettings):
    address: str | None = None
    """Ray cluster to join; auto finds a local one. null: start a private one."""
    num_cpus: int | None = Field(default=None, ge=1)
    """Cores of a private cluster. null: all."""
    object_store_mb: int = Field(default=100, ge=80)
    """Ray's object store of a private cluster, MiB. Images don't pass through it."""
