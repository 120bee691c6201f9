"""How far deliveries of webhooks are behind."""

from __future__ import annotations

from serve_app.figures import declared
from serve_app.figures.scrape import Scrape
from serve_app.webhooks.outbox import Outbox


async def tell_of_webhooks(outbox: Outbox, scrape: Scrape) -> None:
    pending, oldest_s = await outbox.backlog()
    scrape.add(declared.WEBHOOKS_PENDING, pending)
    scrape.add(declared.WEBHOOKS_OLDEST, oldest_s)
    came_of_it, delay = await outbox.delivered()
    for event, count in came_of_it.items():
        scrape.add(declared.WEBHOOK_EVENTS, count, event=event)
    scrape.add_histogram(declared.WEBHOOK_DELAY, delay)
