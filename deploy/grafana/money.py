"""Credits, and what results cost."""

from __future__ import annotations

from typing import Final

from deploy.grafana.dashboard import Dashboard, Row, stat, table, timeseries
from deploy.grafana.expressions import rate, ratio

MONEY: Final = Dashboard(
    "money",
    "Money",
    (
        Row(
            "Credits",
            (
                stat("To spend", "short", "gen_credits_balance"),
                stat("Held", "short", "gen_credits_held", "For tasks on their way"),
                stat("Spent", "short", "gen_credits_spent_total"),
                stat("Granted", "short", "gen_credits_granted"),
                stat(
                    "Off the books",
                    "short",
                    "gen_credits_granted - gen_credits_balance - gen_credits_held - gen_credits_spent_total",
                    "Must be 0",
                ),
            ),
        ),
        Row(
            "What results cost, over the whole time shown",
            (
                table("Results", "short", "sum by (endpoint) (increase(gen_results_total[$__range]))"),
                table(
                    "Seconds of a device for a result",
                    "s",
                    "sum by (endpoint) (increase(gen_device_seconds_total[$__range])) / "
                    "sum by (endpoint) (increase(gen_results_total[$__range]))",
                ),
                table(
                    "Credits for a result",
                    "short",
                    "sum by (endpoint) (increase(gen_results_credits_total[$__range])) / "
                    "sum by (endpoint) (increase(gen_results_total[$__range]))",
                ),
            ),
        ),
        Row(
            "By endpoint",
            (
                timeseries(
                    "Results an hour",
                    "short",
                    (f"3600 * sum by (endpoint) ({rate('gen_results_total')})", "{{endpoint}}"),
                    stacked=True,
                ),
                timeseries(
                    "Devices that work for it",
                    "short",
                    (f"sum by (endpoint) ({rate('gen_device_seconds_total')})", "{{endpoint}}"),
                    stacked=True,
                ),
                timeseries(
                    "Credits an hour",
                    "short",
                    (f"3600 * sum by (endpoint) ({rate('gen_results_credits_total')})", "{{endpoint}}"),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "What devices' time is paid for",
            (
                timeseries(
                    "Share of busy time that went to endpoints",
                    "percentunit",
                    (
                        ratio(rate("gen_device_seconds_total"), rate("gen_model_busy_seconds_total"), "model"),
                        "{{model}}",
                    ),
                    about="The rest was cancelled, lost, or waited; over 1 where encoding goes on beside steps",
                ),
                timeseries(
                    "Credits for a second of a device",
                    "short",
                    (
                        ratio(rate("gen_results_credits_total"), rate("gen_device_seconds_total"), "endpoint"),
                        "{{endpoint}}",
                    ),
                ),
            ),
        ),
    ),
)
