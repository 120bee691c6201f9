"""The servers of one replica: at fixed addresses, or one that the replica starts, watches and restarts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from deployments.backend import JobError
from deployments.contract.model import COMFYUI, EngineConfig
from deployments.contract.workflow import Workflow
from deployments.engine.requests import Health
from deployments.remote_engine.child import EngineProcess
from deployments.remote_engine.client import EngineBusy, EngineClient, EngineLost, EngineRefused, JobClient
from deployments.remote_engine.comfyui import ComfyClient, NodeTimes

logger = logging.getLogger(__name__)

_HEALTH_EVERY_S: Final = 1.0
_POLL_S: Final = 0.5


@dataclass(eq=False)
class Server:
    client: JobClient
    process: EngineProcess | None = None
    healthy: bool = True
    healthy_at: float = field(default_factory=time.monotonic)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is given up, which interrupts its jobs."""
    jobs: int = 0
    started_jobs: int = 0
    """Jobs since the start of its process."""


class ServerPool:
    """Chooses a server for each job, and gives up those that die or hang."""

    def __init__(self, config: EngineConfig, workflow: Workflow | None, health: Health) -> None:
        """Starts the command, if any, and waits until it is healthy. Raises RuntimeError."""
        self._config = config
        self._workflow = workflow
        self._health = health
        self._node_times = NodeTimes()
        self._process: EngineProcess | None = None
        if config.command is not None:
            self._process = EngineProcess(config.command)
            self._process.start()
        urls = (self._process.url,) if self._process else config.urls
        try:
            asyncio.run(self._wait_until_ready(urls))
            self.servers = [Server(self._connect(url), self._process) for url in urls]
        except Exception:
            self.stop()
            raise

    @property
    def description(self) -> str:
        return "command" if self._process else f"{len(self.servers)} at fixed addresses"

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    @asynccontextmanager
    async def server(self, url: str | None) -> AsyncIterator[Server]:
        """Yields the server at `url`, or the healthy one with the fewest jobs. Raises EngineBusy if none becomes
        healthy in time, EngineLost if the server is given up meanwhile."""
        give_up_at = time.monotonic() + self._config.health_timeout_s
        while not (healthy := [each for each in self.servers if each.healthy]):
            if time.monotonic() > give_up_at:
                raise EngineBusy(0)
            await asyncio.sleep(_POLL_S)
        server = next((each for each in healthy if each.client.url == url), None)
        server = server or min(healthy, key=lambda each: each.jobs)
        server.jobs += 1
        server.started_jobs += 1
        body = asyncio.current_task()
        assert body is not None

        async def interrupt() -> None:
            await server.lost.wait()
            body.cancel()

        watch = asyncio.create_task(interrupt())
        try:
            yield server
        except asyncio.CancelledError:
            # A cancellation by the caller or a deadline takes precedence over a lost server.
            if watch.done() and body.uncancel() == 0:
                raise EngineLost("the server does not answer its health check") from None
            raise
        finally:
            watch.cancel()
            server.jobs -= 1

    async def watch(self, server: Server) -> None:
        """Checks the server's health. When it is gone, interrupts its jobs and restarts its command."""
        try:
            await self._watch(server)
        finally:
            await server.client.close()

    async def _watch(self, server: Server) -> None:
        restart_after = self._config.restart_after
        while True:
            await asyncio.sleep(_HEALTH_EVERY_S)
            is_dead = server.process is not None and not server.process.runs
            is_due = restart_after is not None and server.started_jobs >= restart_after
            now = time.monotonic()
            if not is_dead and not is_due and await server.client.is_healthy():
                server.healthy, server.healthy_at = True, now
                continue
            server.healthy = False
            if not is_dead and (server.jobs if is_due else now - server.healthy_at < self._config.health_timeout_s):
                continue
            server.lost.set()
            server.lost = asyncio.Event()
            if server.process is not None:
                reason = "ended" if is_dead else f"has had {server.started_jobs} jobs" if is_due else "hangs"
                logger.warning("the inference server %s: it is started again", reason)
                server.started_jobs = 0
                try:
                    await asyncio.to_thread(server.process.start)
                    await server.client.close()
                    server.client = self._connect(server.process.url)
                    await self._wait_until_healthy(server.process)
                except (OSError, RuntimeError) as error:
                    logger.critical("the inference server can't be started again: %s", error)
                    self._health.broken = True
                    return
            server.healthy_at = time.monotonic()

    def _connect(self, url: str) -> JobClient:
        if self._config.kind == COMFYUI:
            assert self._workflow is not None
            return ComfyClient(self._config, self._workflow, url, self._node_times)
        return EngineClient(self._config, url, self._process.folder if self._process else None)

    async def _wait_until_ready(self, urls: Sequence[str]) -> None:
        """Raises RuntimeError if the command does not become healthy, or if every server refuses this service."""
        if self._process is not None:
            await self._wait_until_healthy(self._process)
        refusals = list[str]()
        for url in urls:
            client = self._connect(url)
            try:
                await client.check_access()
            except EngineRefused as error:
                logger.critical("%s refuses the requests of this service: %s", url, error)
                refusals.append(str(error))
            except (EngineLost, EngineBusy, JobError, RuntimeError):
                pass  # it may come later
            finally:
                await client.close()
        if len(refusals) == len(urls):
            raise RuntimeError(f"the inference server refuses the requests of this service: {refusals[0]}")

    async def _wait_until_healthy(self, process: EngineProcess) -> None:
        """Raises RuntimeError if the process takes too long or ends."""
        client, limit_s = self._connect(process.url), self._config.start_timeout_s
        give_up_at = time.monotonic() + limit_s
        try:
            while not await client.is_healthy():
                if not process.runs:
                    raise RuntimeError("the engine's command ended before it was healthy: its log says why")
                if time.monotonic() > give_up_at:
                    raise RuntimeError(f"the engine is not healthy {limit_s:.0f} s after its start")
                await asyncio.sleep(_POLL_S)
        finally:
            await client.close()
