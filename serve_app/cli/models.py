"""`gen-serve models`: which endpoints a service has, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from serve_app.cli.description import Schema
from serve_app.cli.options import BaseUrl, Json
from serve_app.cli.service import connect_without_key
from serve_app.cli.table import Amount, Cell, show

_COLUMNS = ("endpoint", "mode", "credits", "per", "further MP", "MP sent", "deprecated", "does")


def models(as_json: Json = False, base_url: BaseUrl = None) -> None:
    """List the endpoints with their prices: credits for the first megapixel, each further one, each one sent."""
    with connect_without_key(base_url) as client:
        endpoints = client.description().endpoints()
    show(_COLUMNS, (row for name in endpoints for row in _rows(name, endpoints[name])), as_json=as_json)


def _rows(name: str, operation: Schema) -> Iterator[tuple[Cell, ...]]:
    """One for each mode; one without prices where the service does not say them."""
    prices: list[dict[str, Any]] = operation.get("x-prices") or [{}]
    for price in prices:
        yield (
            name,
            price.get("mode"),
            _amount(price, "first"),
            "second" if price.get("per_second") else "picture" if price else None,
            _amount(price, "out"),
            _amount(price, "input"),
            operation.get("deprecated", False),
            operation.get("summary", ""),
        )


def _amount(price: dict[str, Any], name: str) -> Amount | None:
    return Amount(price[name]) if name in price else None
