"""Endpoints that are served in some regions only."""

from __future__ import annotations

from serve_app.config.endpoint import Endpoint
from serve_app.config.settings import ServiceSettings


def elsewhere(name: str, endpoint: Endpoint, service: ServiceSettings) -> str | None:
    """Where an endpoint is served that is not served here, as clients are told; None where it is."""
    if service.region is None or not endpoint.regions or service.region in endpoint.regions:
        return None
    addresses = ", ".join(f"{service.regions[region].rstrip('/')}/v1/{name}" for region in endpoint.regions)
    return f"Not served in region {service.region}; this endpoint is at {addresses}"
