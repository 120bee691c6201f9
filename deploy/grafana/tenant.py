"""Projects: what they take of the devices, and what they pay."""

from __future__ import annotations

from typing import Final

from deploy.grafana.dashboard import Dashboard, Row, Variable, table, timeseries
from deploy.grafana.expressions import rate

_P: Final = '{project=~"$project"}'

TENANT: Final = Dashboard(
    "tenant",
    "Tenants",
    (
        Row(
            "Projects",
            (
                timeseries(
                    "Devices that work for it",
                    "short",
                    (f"sum by (project) ({rate('gen_project_device_seconds_total', _P)})", "{{project}}"),
                    about="Seconds of devices, a second; of the projects with most",
                    stacked=True,
                ),
                timeseries(
                    "Share of all devices' time",
                    "percentunit",
                    (
                        f"sum by (project) ({rate('gen_project_device_seconds_total', _P)}) / "
                        "ignoring (project) group_left () "
                        f"sum({rate('gen_device_seconds_total')})",
                        "{{project}}",
                    ),
                ),
                timeseries(
                    "Credits an hour",
                    "short",
                    (f"3600 * sum by (project) ({rate('gen_project_credits_total', _P)})", "{{project}}"),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Over the whole time shown",
            (
                table(
                    "Seconds of devices",
                    "s",
                    f"sum by (project) (increase(gen_project_device_seconds_total{_P}[$__range]))",
                ),
                table("Credits", "short", f"sum by (project) (increase(gen_project_credits_total{_P}[$__range]))"),
                table(
                    "Seconds of devices for a credit",
                    "s",
                    f"sum by (project) (increase(gen_project_device_seconds_total{_P}[$__range])) / "
                    f"sum by (project) (increase(gen_project_credits_total{_P}[$__range]))",
                ),
            ),
        ),
        Row(
            "All projects",
            (
                timeseries(
                    "Refused, a minute",
                    "short",
                    (
                        f"60 * sum by (endpoint, reason) ({rate('gen_submissions_refused_total')})",
                        "{{endpoint}} {{reason}}",
                    ),
                ),
                timeseries(
                    "Ended by moderation, a minute",
                    "short",
                    (
                        "60 * sum by (model, event) (rate(gen_task_events_total"
                        '{event=~"request_moderated|content_moderated"}[$__rate_interval]))',
                        "{{model}} {{event}}",
                    ),
                ),
            ),
        ),
    ),
    (Variable("project", "gen_project_device_seconds_total"),),
)
