"""The webhook deployment."""

from __future__ import annotations

import asyncio
from typing import Final

from deployments.contract.objects import ObjectStore
from deployments.proxies import apply_proxy
from deployments.telemetry import create_tracer, logs
from serve_app.background import BackgroundTasks
from serve_app.config.replicas import BoundSettings
from serve_app.encryption import Sealer
from serve_app.inputs.links import LinkSigner, get_link_secret
from serve_app.inputs.ssrf import UrlGuard
from serve_app.storage import connection
from serve_app.storage.log_levels import LogLevels
from serve_app.tasks.serializer import ResultSerializer
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox
from serve_app.webhooks.sender import Sender

SECTIONS: Final = ("redis", "objects", "links", "tasks", "network", "sealing", "webhooks", "tracing", "logs")
"""Sections of the settings that the sender reads."""


class WebhookSender:
    async def __init__(self, bound: BoundSettings) -> None:  # type: ignore[misc]  # Serve awaits it
        settings = bound.settings()
        logs.configure_replica(settings.logs.spec())
        apply_proxy(settings.network.proxy)
        self._tracer = create_tracer(settings.tracing.spec(), "webhook-sender")
        prefix, at_rest = settings.redis.prefix, settings.at_rest()
        self._redis = connection.connect(settings.redis_url)
        serializer = ResultSerializer(
            ObjectStore(settings.objects_url, settings.objects.options),
            LinkSigner(await get_link_secret(self._redis, prefix)),
            settings.links.image_life_s,
            settings.links.video_life_s,
        )
        self._sender = Sender(
            Outbox(self._redis, prefix, settings.webhooks, at_rest),
            TaskStore(self._redis, prefix, settings.tasks.limits(), settings.redis.replication(), at_rest),
            serializer,
            Sealer(settings.sealing_keys),
            UrlGuard(settings.network.allow),
            settings.webhooks.signature_headers,
            self._tracer,
        )
        sender = self._sender
        levels = LogLevels(self._redis, prefix, settings.logs.levels)
        self._loops = BackgroundTasks(
            {"listen": sender.listen, "send": sender.send, "prolong": sender.prolong, "log levels": levels.follow}
        )

    async def check_health(self) -> None:
        self._loops.check()

    async def __del__(self) -> None:
        """Drains before shutdown."""
        await self._sender.drain()
        await self._loops.stop()
        await self._redis.aclose()
        await asyncio.to_thread(self._tracer.close)
