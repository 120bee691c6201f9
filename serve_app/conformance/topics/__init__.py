"""The topics, in the order of the interface."""

from __future__ import annotations

from typing import Final

from serve_app.conformance.check import Topic
from serve_app.conformance.topics import (
    authentication,
    errors,
    fields,
    finetunes,
    idempotency,
    limits,
    money,
    polling,
    prompts,
    results,
    statuses,
    submission,
    tools,
    usage,
    versions,
    video,
    webhooks,
)

TOPICS: Final[tuple[Topic, ...]] = (
    submission.topic,
    idempotency.topic,
    fields.topic,
    prompts.topic,
    tools.topic,
    video.topic,
    finetunes.topic,
    polling.topic,
    results.topic,
    statuses.topic,
    webhooks.topic,
    usage.topic,
    authentication.topic,
    errors.topic,
    limits.topic,
    versions.topic,
    money.topic,
)
