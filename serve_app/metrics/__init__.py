"""Prometheus metrics: declared in `series.py`, read from the task store by `reader.py`."""
