"""Grafana's dashboards: described in `dashboards.py`, written as JSON beside it by `python -m deploy.grafana`."""
