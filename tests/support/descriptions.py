"""Both OpenAPI documents of an app, as one."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from serve_app.api.openapi import admin_document


def described_paths(app: FastAPI) -> dict[str, dict[str, Any]]:
    return app.openapi()["paths"] | admin_document(app)["paths"]
