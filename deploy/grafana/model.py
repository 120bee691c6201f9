"""One model: its queue, how long its tasks take, its batches, replicas and caches."""

from __future__ import annotations

from typing import Final

from deploy.grafana.dashboard import Dashboard, Row, Variable, table, timeseries
from deploy.grafana.expressions import quantiles, rate, ratio

_L: Final = '{model=~"$model"}'

MODEL: Final = Dashboard(
    "model",
    "Model",
    (
        Row(
            "Queue",
            (
                timeseries(
                    "Tasks",
                    "short",
                    (f"gen_tasks_queued{_L}", "{{model}} waiting"),
                    (f"gen_tasks_quarantined{_L}", "{{model}} quarantined"),
                    (f"gen_tasks_leased{_L}", "{{model}} leased"),
                ),
                timeseries("Work that waits", "s", (f"gen_tasks_queued_work_seconds{_L}", "{{model}}")),
                timeseries(
                    "Wait",
                    "s",
                    (f"gen_tasks_oldest_wait_seconds{_L}", "{{model}} longest"),
                    (f"gen_tasks_predicted_wait_seconds{_L}", "{{model}} predicted"),
                ),
            ),
        ),
        Row(
            "Tasks",
            (
                quantiles("Waited", "gen_task_wait_seconds", _L, "model"),
                quantiles("Took", "gen_task_work_seconds", _L, "model"),
                timeseries(
                    "A minute",
                    "short",
                    (f"60 * sum by (model, event) ({rate('gen_task_events_total', _L)})", "{{model}} {{event}}"),
                ),
            ),
        ),
        Row(
            "Batches",
            (
                timeseries(
                    "Mean batch",
                    "short",
                    (
                        ratio(rate("gen_model_step_members_total", _L), rate("gen_model_steps_total", _L), "model"),
                        "{{model}}",
                    ),
                ),
                timeseries(
                    "Batches of at most",
                    "percentunit",
                    (
                        f"sum by (le) ({rate('gen_model_batch_size_bucket', _L)}) / ignoring (le) group_left () "
                        f"sum({rate('gen_model_batch_size_count', _L)})",
                        "{{le}}",
                    ),
                    about="Share of the steps",
                ),
                quantiles("Step", "gen_model_step_seconds", _L, "model"),
            ),
        ),
        Row(
            "Replicas",
            (
                timeseries(
                    "Replicas",
                    "short",
                    ('sum by (deployment, state) (gen_replicas{deployment=~"$model"})', "{{deployment}} {{state}}"),
                ),
                timeseries(
                    "Busy replicas",
                    "short",
                    (f"sum by (model) ({rate('gen_model_busy_seconds_total', _L)})", "{{model}}"),
                ),
                timeseries(
                    "Share of busy time inside the model",
                    "percentunit",
                    (
                        f"sum by (model, call) ({rate('gen_model_call_seconds_total', _L)}) / "
                        "ignoring (call) group_left () "
                        f"sum by (model) ({rate('gen_model_busy_seconds_total', _L)})",
                        "{{model}} {{call}}",
                    ),
                    about="They go on beside each other",
                ),
                timeseries(
                    "Loading a model",
                    "s",
                    (
                        f"sum by (model) (increase(gen_model_load_seconds_sum{_L}[1h])) / "
                        f"sum by (model) (increase(gen_model_load_seconds_count{_L}[1h]))",
                        "{{model}}",
                    ),
                    about="Mean of those loaded within an hour",
                ),
            ),
        ),
        Row(
            "Caches",
            (
                timeseries(
                    "Found",
                    "percentunit",
                    (
                        ratio(
                            rate("gen_model_cache_lookups_total", '{model=~"$model", found="yes"}'),
                            rate("gen_model_cache_lookups_total", _L),
                            "model, cache",
                        ),
                        "{{model}} {{cache}}",
                    ),
                ),
                timeseries(
                    "Left for want of room, a minute",
                    "short",
                    (
                        f"60 * sum by (model, cache) ({rate('gen_model_cache_evictions_total', _L)})",
                        "{{model}} {{cache}}",
                    ),
                ),
                table("How replicas run their models", "short", f"gen_model_setup_info{_L}"),
            ),
        ),
    ),
    (Variable("model", "gen_tasks_queued"),),
)
