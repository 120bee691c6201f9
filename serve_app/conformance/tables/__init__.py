"""The fields of every endpoint's request, written down by hand from the interface and what settles it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from serve_app.conformance.field import Field
from serve_app.conformance.tables.pictures import PICTURES
from serve_app.conformance.tables.tools import TOOLS
from serve_app.conformance.tables.video import VIDEO

FIELDS: Final[Mapping[str, tuple[Field, ...]]] = {**PICTURES, **TOOLS, **VIDEO}
"""By endpoint."""
