"""Destinations of webhooks: origins, each as one organization calls it. One is slow or down as a whole."""

from __future__ import annotations

import json
from typing import NamedTuple


class WebhookDestination(NamedTuple):
    origin: str
    """Scheme, host and port; their keyed hash where settings seal what clients wrote."""
    organization: str

    def encode(self) -> str:
        """Returns the id of the destination in the outbox: a JSON array, which `outbox.lua` decodes."""
        # The space lets senders of 0.2, which run beside this release during an upgrade, parse it.
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> WebhookDestination:
        if not text.startswith("["):  # written by 0.2; goes after 0.3
            return cls(*text.split(" "))
        return cls(*json.loads(text))
