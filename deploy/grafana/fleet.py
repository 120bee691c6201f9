"""All models at a glance, and what stands around them: the store, requests, webhooks."""

from __future__ import annotations

from typing import Final

from deploy.grafana.dashboard import Dashboard, Row, stat, timeseries
from deploy.grafana.expressions import failure_ratio, quantiles, rate

FLEET: Final = Dashboard(
    "fleet",
    "Fleet",
    (
        Row(
            "Now",
            (
                stat("Waiting", "short", "sum(gen_tasks_queued) + sum(gen_tasks_quarantined)"),
                stat("Being worked on", "short", "sum(gen_tasks_leased)"),
                stat("Longest wait", "s", "max(gen_tasks_oldest_wait_seconds)"),
                stat("Results a minute", "short", f"60 * sum({rate('gen_results_total')})"),
                stat(
                    "Failed of ended, %",
                    "percent",
                    f"100 * {failure_ratio('1h')}",
                    "Without those that clients cancelled",
                ),
                stat(
                    "Store memory, %",
                    "percent",
                    "100 * gen_store_memory_bytes / (gen_store_memory_limit_bytes > 0)",
                    "Of what it may use",
                ),
            ),
        ),
        Row(
            "Models",
            (
                timeseries("Waiting", "short", ("gen_tasks_queued + gen_tasks_quarantined", "{{model}}"), stacked=True),
                timeseries("Longest wait", "s", ("gen_tasks_oldest_wait_seconds", "{{model}}")),
                timeseries(
                    "Predicted wait",
                    "s",
                    ("gen_tasks_predicted_wait_seconds", "{{model}}"),
                    about="Of a task submitted now, if as many run at a time as do now",
                ),
            ),
        ),
        Row(
            "Models",
            (
                timeseries("Being worked on", "short", ("gen_tasks_leased", "{{model}}"), stacked=True),
                timeseries(
                    "Replicas", "short", ("sum by (deployment, state) (gen_replicas)", "{{deployment}} {{state}}")
                ),
                timeseries(
                    "Busy replicas",
                    "short",
                    (f"sum by (model) ({rate('gen_model_busy_seconds_total')})", "{{model}}"),
                    about="Seconds with a job or more, a second",
                ),
            ),
        ),
        Row(
            "What happens to tasks",
            (
                timeseries(
                    "A minute", "short", (f"60 * sum by (event) ({rate('gen_task_events_total')})", "{{event}}")
                ),
                timeseries(
                    "Troubles, an hour",
                    "short",
                    (
                        "sum by (model, event) (increase(gen_task_events_total"
                        '{event=~"crashes|interruptions|reaped|refused|requeued"}[1h]))',
                        "{{model}} {{event}}",
                    ),
                ),
                quantiles("Moderation", "gen_moderation_seconds", by="what"),
            ),
        ),
        Row(
            "Requests",
            (
                timeseries(
                    "A second",
                    "reqps",
                    (f"sum by (status) ({rate('gen_http_request_duration_seconds_count')})", "{{status}}"),
                ),
                quantiles("Submission", "gen_http_request_duration_seconds", '{method="POST", route=~"/v1/gen-.*"}'),
                quantiles("Polling", "gen_http_request_duration_seconds", '{route="/v1/get_result"}'),
                timeseries(
                    "Refused, a minute",
                    "short",
                    (f"60 * sum by (reason) ({rate('gen_submissions_refused_total')})", "{{reason}}"),
                ),
            ),
        ),
        Row(
            "Webhooks and maintenance",
            (
                timeseries("Webhooks on their way", "short", ("gen_webhooks_pending", "pending")),
                quantiles("Until delivered", "gen_webhook_delay_seconds"),
                timeseries(
                    "Webhooks, a minute",
                    "short",
                    (f"60 * sum by (event) ({rate('gen_webhook_events_total')})", "{{event}}"),
                ),
                timeseries(
                    "Behind",
                    "s",
                    ("max by (what) (gen_reaper_lag_seconds)", "reaper, {{what}}"),
                    ("gen_sweeper_lag_seconds", "sweeper"),
                    ("gen_webhooks_oldest_pending_seconds", "webhooks"),
                ),
            ),
        ),
    ),
)
