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
from typing import TYPE_CHECKING, Final

from deployments.proxies import apply_proxy
from deployments.telemetry import logs
from serve_app.api.metrics import PATH as METRICS
from serve_app.api.metrics import create_metrics_app
from serve_app.api.model_status import CountReplicas, Replicas, unknown_replicas
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

_WATCH_PERIOD_S: Final = 0.1
_MAX_MESSAGE: Final = 1000
_MAX_ROOT_BYTES: Final = 39
"""Length of a folder for Ray's sockets: their names add 68 bytes, and the system allows 107."""


class RayNotStarted(RuntimeError):
    """Ray did not start, or did not reach the cluster."""


class Stopped(Exception):
    """A signal asked the service to stop."""


class Launcher:
    """A running service, as a context manager. It stops everything that it started, also after a failed start."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.base_url = f"http://{reachable(settings.service.host)}:{settings.service.port}"
        self.made_key = False
        """True if this start made the file with the API key."""
        self._server: EmbeddedRedis | None = None
        self._ask_replicas: CountReplicas = unknown_replicas
        self._resources = ExitStack()

    def __enter__(self) -> Launcher:
        _install_signal_handlers()
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def serve(self, until: Callable[[], bool] = lambda: False) -> None:
        """Restarts the embedded server if it dies, until a signal comes. Must run in the main thread."""
        while not until():
            if self._server and self._server.revive():
                logger.warning("the embedded Redis server died and was restarted")
            time.sleep(_WATCH_PERIOD_S)

    @property
    def key_file(self) -> Path:
        return first_start.key_file(self.settings)

    @property
    def metrics_url(self) -> str | None:
        """URL of the metrics for this machine; None if they are off."""
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
        """Returns the service's replicas. Serve is only called while it runs, because a call would start another
        Ray."""
        return await self._ask_replicas()

    def _start_ray(self) -> None:
        if self.settings.ray.address is None:
            self._start_private()
        else:
            self._join(self.settings.ray.address)

    def _start_private(self) -> None:
        settings = self.settings
        root = socket_root()
        folder = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="gen-serve-", dir=root))
        ray_flags.apply_private(Path(folder), settings.service.host, first_start.ray_token_file(settings))

        import ray  # after the flags are set: Ray reads them when it is imported
        from ray import serve
        from ray.serve.config import HTTPOptions

        from serve_app.ray_internals import start_own_node

        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        with _explain_failures(root), start_own_node():
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
        _install_signal_handlers()
        with _explain_failures(root):
            # Only the proxy calls the replicas. It serves clients on the service's host.
            serve.start(http_options=HTTPOptions(host="127.0.0.1", port=settings.service.port))
        self._resources.callback(serve.shutdown)

        from serve_app import application

        application_to_run = application.build(settings)
        with _explain_failures(root):
            self._deploy(application_to_run)
        self._count_replicas()

    def _join(self, address: str) -> None:
        """Serves on an existing cluster. At the end it removes only the application."""
        ray_flags.apply()
        from serve_app.cluster.deploy import ClusterUnreachable, connect  # after the flags are set

        try:
            self._resources.enter_context(connect(address))
        except ClusterUnreachable as problem:
            raise RayNotStarted(str(problem)) from problem
        _install_signal_handlers()

        from serve_app import application
        from serve_app.cluster.deploy import listen_everywhere, remove_application
        from serve_app.cluster.preflight import run_preflight

        if not run_preflight(self.settings, ray_flags.FLAGS):
            raise RayNotStarted("the cluster is not fit to serve: fix the refused checks above")
        if elsewhere := listen_everywhere(self.settings):
            logger.warning(elsewhere)
        self._resources.callback(remove_application)
        self._deploy(application.build(self.settings))
        self._count_replicas()

    def _deploy(self, application: serve.Application) -> None:
        from serve_app.cluster.deploy import deploy_application

        faults = deploy_application(application, catalog.load(self.settings).models)
        for name, fault in faults.items():
            logger.warning("models.%s can't be loaded yet, Ray retries: %s", name, fault.reason)

    def _count_replicas(self) -> None:
        """Lets the metrics count replicas for as long as Ray runs."""
        from serve_app import application

        self._ask_replicas = partial(application.count_replicas, application.APP_NAME)
        self._resources.callback(setattr, self, "_ask_replicas", unknown_replicas)

    def _close(self) -> None:
        # A second Ctrl-C must not interrupt the clean-up.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Ray reports its own shutdown as errors.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self._resources.close()


@contextlib.contextmanager
def _explain_failures(root: str) -> Iterator[None]:
    """Turns errors of a start into RayNotStarted with advice. Signals pass."""
    try:
        yield
    except (Stopped, SystemError):
        raise
    except Exception as problem:
        advice = advise(problem, f"{root}/ray/session_latest/logs may say why; accepted tasks are kept")
        text = str(problem)[-_MAX_MESSAGE:]
        raise RayNotStarted(f"the service did not start: {advice}. Ray says: {text}") from problem


def socket_root() -> str:
    """Returns the folder for temporary files; /tmp if its path is too long for sockets."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= _MAX_ROOT_BYTES else "/tmp"


async def _make_keys(settings: Settings) -> bool:
    """Returns whether the API key is new."""
    redis = connection.connect(settings.redis_url)
    try:
        await check_permissions(redis, settings.redis.prefix)
        return (await first_start.make_keys(settings, redis))[0].is_new
    finally:
        await redis.aclose()


def _install_signal_handlers() -> None:
    """Installs the signal handlers; again after each start of Ray, which installs its own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped
