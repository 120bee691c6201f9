"""The launcher of a whole service in one process: Redis, Ray, the application."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from deployments.proxies import apply_proxy
from deployments.telemetry import logs
from serve_app.api.metrics import PATH as METRICS
from serve_app.api.metrics import create_metrics_app
from serve_app.api.model_status import AskReplicas, Replicas, unknown_replicas
from serve_app.config import catalog
from serve_app.config.sections import reachable
from serve_app.config.settings import Settings
from serve_app.launcher import first_start, ray_flags
from serve_app.launcher.advice import advise
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.launcher.first_start import with_key
from serve_app.launcher.running import MetricsServer, listen
from serve_app.storage import connection
from serve_app.storage.refusals import check_permissions

if TYPE_CHECKING:
    from ray import serve

logger = logging.getLogger(__name__)

_WATCH_EVERY_S = 0.1
_MAX_TEXT = 1000
_MAX_ROOT_BYTES = 39
"""Length of a folder under which Ray's sockets, 68 bytes further down, keep within the 107 of the system."""


class RayNotStarted(RuntimeError):
    """Ray gave up on starting, or on reaching the cluster."""


class Stopped(Exception):
    """A signal asked the service to stop."""


class Launcher:
    """Use as a context manager: whatever was started is stopped, in order, also when starting fails halfway."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.base_url = f"http://{reachable(settings.service.host)}:{settings.service.port}"
        self.made_key = False
        """True once this start has made the file with the API key."""
        self._server: EmbeddedRedis | None = None
        self._ask_replicas: AskReplicas = unknown_replicas
        self._resources = ExitStack()

    def __enter__(self) -> Launcher:
        _listen_to_signals()
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
        return first_start.key_file(self.settings)

    @property
    def metrics_url(self) -> str | None:
        """Where this machine reads the figures; None where there are none."""
        host, port = self.settings.metrics.host, self.settings.metrics.port
        return None if port is None else f"http://{reachable(host)}:{port}{METRICS}"

    def _start(self) -> None:
        settings = self.settings
        logs.configure_stderr(settings.logs.spec())
        apply_proxy(settings.network.proxy)
        listen(settings.service.host, settings.service.port, "service.port").close()
        first_start.make_files(settings)
        if settings.redis.url is None:
            self._server = EmbeddedRedis(settings.data_dir / "redis")
            self._resources.callback(self._server.stop)
            self._server.start()
            self.settings = settings = settings.with_redis(self._server.url)
        self.settings = settings = with_key(settings)
        self.made_key = asyncio.run(_make_keys(settings))
        self._start_metrics()
        self._start_ray()

    def _start_metrics(self) -> None:
        host, port = self.settings.metrics.host, self.settings.metrics.port
        if port is not None:
            app = create_metrics_app(self.settings, catalog.load(self.settings), self._replicas)
            self._resources.enter_context(MetricsServer(app, listen(host, port, "metrics.port")))

    async def _replicas(self) -> Replicas:
        """Those of the service, while it runs here: Serve, asked at another time, would start a Ray of its own."""
        return await self._ask_replicas()

    def _start_ray(self) -> None:
        if self.settings.ray.address is None:
            self._start_own()
        else:
            self._join(self.settings.ray.address)

    def _start_own(self) -> None:
        settings = self.settings
        root = socket_root()
        folder = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="gen-serve-", dir=root))
        ray_flags.apply_to_own(Path(folder), settings.service.host, first_start.ray_token_file(settings))

        import ray  # after the switches are set: Ray reads them when it is imported
        from ray import serve
        from ray.serve.config import HTTPOptions

        from serve_app.ray_internals import start_own_node

        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        with _advising(root), start_own_node():
            ray.init(
                address="local",
                num_cpus=settings.ray.num_cpus,
                object_store_memory=settings.ray.object_store_mb * 2**20,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=f"{root}/ray",
            )
        self._resources.callback(ray.shutdown)
        _listen_to_signals()
        with _advising(root):
            # Replicas and all else are for the proxy alone, which serves on the service's host.
            serve.start(http_options=HTTPOptions(host="127.0.0.1", port=settings.service.port))
        self._resources.callback(serve.shutdown)

        from serve_app import application

        application_to_run = application.build(settings)
        with _advising(root):
            self._deploy(application_to_run)
        self._ask_for_replicas()

    def _join(self, address: str) -> None:
        """Serves on a cluster that others started; at the end only the application is taken away again."""
        ray_flags.apply()
        from serve_app.cluster.deploy import ClusterUnreachable, connect  # after the switches, as above

        try:
            self._resources.enter_context(connect(address))
        except ClusterUnreachable as problem:
            raise RayNotStarted(str(problem)) from problem
        _listen_to_signals()

        from serve_app import application
        from serve_app.cluster.deploy import listen_everywhere, remove_application
        from serve_app.cluster.preflight import run_preflight

        if not run_preflight(self.settings, ray_flags.FLAGS):
            raise RayNotStarted("the cluster is not fit to serve: fix what is refused above")
        if elsewhere := listen_everywhere(self.settings):
            logger.warning(elsewhere)
        self._resources.callback(remove_application)
        self._deploy(application.build(self.settings))
        self._ask_for_replicas()

    def _deploy(self, application: serve.Application) -> None:
        from serve_app.cluster.deploy import deploy_application

        faults = deploy_application(application, catalog.load(self.settings).models)
        for name, fault in faults.items():
            logger.warning("models.%s can't be loaded, and is tried again: %s", name, fault.reason)

    def _ask_for_replicas(self) -> None:
        """From now on, and as long as Ray runs."""
        from serve_app import application

        self._ask_replicas = partial(application.replicas, application.APP_NAME)
        self._resources.callback(setattr, self, "_ask_replicas", unknown_replicas)

    def _close(self) -> None:
        # A second Ctrl-C must not leave processes behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Ray talks about its own going down as if something were wrong.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self._resources.close()


@contextlib.contextmanager
def _advising(root: str) -> Iterator[None]:
    """Raises RayNotStarted for what goes wrong within; a signal passes."""
    try:
        yield
    except (Stopped, SystemError):
        raise
    except Exception as problem:
        advice = advise(problem, f"{root}/ray/session_latest/logs may say why; accepted tasks are kept")
        text = str(problem)[-_MAX_TEXT:]
        raise RayNotStarted(f"the service did not start: {advice}. Ray says: {text}") from problem


def socket_root() -> str:
    """Returns the folder for temporary files; /tmp where its path is too long for sockets."""
    usual = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _MAX_ROOT_BYTES else "/tmp"


async def _make_keys(settings: Settings) -> bool:
    """Returns whether the API key is new."""
    redis = connection.connect(settings.redis_url)
    try:
        await check_permissions(redis, settings.redis.prefix)
        return (await first_start.make_keys(settings, redis))[0].is_new
    finally:
        await redis.aclose()


def _listen_to_signals() -> None:
    """Again after Ray has started, which installs its own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped
