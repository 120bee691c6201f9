"""`python -m deploy.grafana` writes the dashboards anew."""

from deploy.grafana.dashboards import DASHBOARDS, FOLDER, written

if __name__ == "__main__":
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(written(dashboard))
