"""`python -m deploy.grafana` writes the dashboards anew."""

from deploy.grafana.dashboards import DASHBOARDS, FOLDER, to_json

if __name__ == "__main__":
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(to_json(dashboard))
