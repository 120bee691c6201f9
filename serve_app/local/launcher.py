"""Runs the whole service from one process: embedded Redis, a Ray cluster of its own, the application."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import secrets
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from deployments.telemetry import logs
from serve_app.accounts.callers import Callers
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.roles import Role
from serve_app.config import catalog
from serve_app.config.addresses import reachable
from serve_app.config.settings import Settings
from serve_app.http.metrics import PATH as METRICS
from serve_app.http.metrics import create_metrics_app
from serve_app.http.replicas import AskReplicas, Replicas, unknown_replicas
from serve_app.local import ray_flags, sealing_key
from serve_app.local.embedded_redis import EmbeddedRedis
from serve_app.local.listening import listen
from serve_app.local.metrics_server import MetricsServer
from serve_app.local.secret_file import write_secret
from serve_app.redis_store import connection

logger = logging.getLogger(__name__)

_WATCH_EVERY_S = 0.1


class RayNotStarted(RuntimeError):
    """Ray gave up on starting, or on reaching the cluster."""


class Stopped(Exception):
    """A signal asked the service to stop."""


class Launcher:
    """Use as a context manager: whatever was started is stopped, in order, also when starting fails halfway."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.base_url = f"http://{reachable(settings.service.host)}:{settings.service.port}"
        self._server: EmbeddedRedis | None = None
        self._ask_replicas: AskReplicas = unknown_replicas
        self._started = ExitStack()

    def __enter__(self) -> Launcher:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def serve(self, until: Callable[[], bool] = lambda: False) -> None:
        """Watches over the embedded server until a signal comes. Must run in the main thread."""
        while not until():
            if self._server and self._server.revive():
                logger.warning("the embedded Redis server had died and was started again")
            time.sleep(_WATCH_EVERY_S)

    @property
    def key_file(self) -> Path:
        return self.settings.data_dir / "key"

    @property
    def metrics_url(self) -> str | None:
        """Where this machine reads the figures; None where there are none."""
        host, port = self.settings.metrics.host, self.settings.metrics.port
        return None if port is None else f"http://{reachable(host)}:{port}{METRICS}"

    @property
    def operator_key_file(self) -> Path:
        return self.settings.data_dir / "operator-key"

    def _start(self) -> None:
        settings = self.settings
        logs.begin_on_stderr(settings.logs.spec())
        listen(settings.service.host, settings.service.port, "service.port").close()
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if settings.redis.url is None:
            self._server = EmbeddedRedis(settings.data_dir / "redis")
            self._started.callback(self._server.stop)
            self._server.start()
            self.settings = settings = settings.with_redis(self._server.url)
        self.settings = settings = sealing_key.with_key(settings)
        _ensure_key(settings, self.key_file, Role.DEVELOPER)
        _ensure_key(settings, self.operator_key_file, Role.OPERATOR)
        self._start_metrics()
        self._start_ray()

    def _start_metrics(self) -> None:
        host, port = self.settings.metrics.host, self.settings.metrics.port
        if port is not None:
            app = create_metrics_app(self.settings, catalog.load(self.settings), self._replicas)
            self._started.enter_context(MetricsServer(app, listen(host, port, "metrics.port")))

    async def _replicas(self) -> Replicas:
        """Those of the service, while it runs here: Serve, asked at another time, would start a Ray of its own."""
        return await self._ask_replicas()

    def _start_ray(self) -> None:
        settings = self.settings
        own = settings.ray.address is None
        if own:
            # A short path: the proxy's socket lives here, and socket paths are limited to about 100 characters.
            folder = self._started.enter_context(tempfile.TemporaryDirectory(prefix="gen-serve-"))
            token = _ray_token(settings.data_dir / "ray-token")
            ray_flags.apply_to_own(Path(folder), settings.service.host, token)
        else:
            ray_flags.apply()

        import ray  # after the switches are set: Ray reads them when it is imported
        from ray import serve
        from ray.exceptions import AuthenticationError
        from ray.serve.config import HTTPOptions

        from serve_app.local.own_node import begun_as_own

        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        try:
            with begun_as_own():
                ray.init(
                    address=settings.ray.address or "local",
                    num_cpus=settings.ray.num_cpus if own else None,
                    object_store_memory=settings.ray.object_store_mb * 2**20 if own else None,
                    include_dashboard=False if own else None,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
        except AuthenticationError:
            raise ValueError(
                "the Ray cluster at ray.address has another token than this process, or there is none here: set "
                "RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the one its nodes have (docs/operations.md)"
            ) from None
        except Exception as problem:
            # On a busy machine, most often: Ray gives a node 30 s to start.
            raise RayNotStarted(f"Ray did not start: {problem} Nothing is lost; try again") from problem
        self._started.callback(ray.shutdown)
        if not own:
            _warn_of_open_nodes()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)  # Ray installs its own
        # On a cluster of its own, replicas and all else are for the proxy alone, which serves on the service's host.
        host = "127.0.0.1" if own else settings.service.host
        serve.start(http_options=HTTPOptions(host=host, port=settings.service.port))
        self._started.callback(serve.shutdown)

        from serve_app import application

        serve.run(application.build(settings), name=application.APP_NAME, route_prefix="/")
        self._ask_replicas = application.replicas
        self._started.callback(setattr, self, "_ask_replicas", unknown_replicas)

    def _close(self) -> None:
        # A second Ctrl-C must not leave processes behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Ray talks about its own going down as if something were wrong.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self._started.close()


def _ensure_key(settings: Settings, path: Path, role: Role) -> None:
    """Makes a local key at first start, and makes it valid again on a new or emptied Redis."""
    secret = path.read_text().strip() if path.exists() else None
    made = asyncio.run(_valid_key(settings, secret, role))
    if made != secret:
        write_secret(path, made)


def _warn_of_open_nodes() -> None:
    from serve_app.local.cluster_auth import open_nodes

    if nodes := open_nodes():
        logger.warning(
            "these nodes of the Ray cluster ask for no token, so whoever reaches a port of theirs can run code there: "
            "%s. Start Ray with RAY_AUTH_MODE=token on every node",
            ", ".join(nodes),
        )


def _ray_token(path: Path) -> Path:
    """What the processes of the service's own cluster ask of each other, made at first start."""
    if not path.exists():
        write_secret(path, secrets.token_hex(32))
    return path


async def _valid_key(settings: Settings, secret: str | None, role: Role) -> str:
    redis = connection.connect(settings.redis_url)
    try:
        keys = KeyStore(redis, settings.redis.prefix)
        if secret and await Callers(redis, settings.redis.prefix).authenticate(secret):
            return secret
        if secret and await keys.is_revoked(secret):
            secret = None
        return (await keys.create("local", secret=secret, role=role))[1]
    finally:
        await redis.aclose()


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped
