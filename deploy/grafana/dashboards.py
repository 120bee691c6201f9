"""The dashboards. Their series are those of `serve_app/metrics/series.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from deploy.grafana.dashboard import Dashboard
from deploy.grafana.fleet import FLEET
from deploy.grafana.model import MODEL
from deploy.grafana.money import MONEY
from deploy.grafana.tenant import TENANT

FOLDER: Final = Path(__file__).parent
DASHBOARDS: Final = (FLEET, MODEL, TENANT, MONEY)


def to_json(dashboard: Dashboard) -> str:
    """The text of its file."""
    return json.dumps(dashboard.model(), indent=1) + "\n"
