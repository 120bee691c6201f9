"""PromQL that many panels are made of."""

from __future__ import annotations

from deploy.grafana.dashboard import Panel, timeseries


def rate(series: str, matchers: str = "") -> str:
    return f"rate({series}{matchers}[$__rate_interval])"


def quantiles(title: str, series: str, matchers: str = "", by: str = "", about: str = "") -> Panel:
    """Half, and nineteen in twenty, of a histogram in seconds, by a label if any."""
    grouping, legend = f"le, {by}" if by else "le", f"{{{{{by}}}}} " if by else ""

    def quantile(q: float) -> str:
        return f"histogram_quantile({q}, sum by ({grouping}) ({rate(f'{series}_bucket', matchers)}))"

    return timeseries(title, "s", (quantile(0.5), f"{legend}p50"), (quantile(0.95), f"{legend}p95"), about=about)


def failure_ratio(window: str) -> str:
    """The share of ended tasks that failed, without those that clients cancelled."""
    failures = f"sum({_events('error', window)}) - sum({_events('cancelled', window)})"
    return f"({failures}) / sum({_events('ready|error|request_moderated|content_moderated', window)})"


def _events(names: str, window: str) -> str:
    return f'rate(gen_task_events_total{{event=~"{names}"}}[{window}])'


def ratio(part: str, whole: str, by: str) -> str:
    return f"sum by ({by}) ({part}) / sum by ({by}) ({whole})"
