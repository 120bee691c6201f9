"""Benchmarks of the running service: `python -m benchmarks`, described in docs/benchmarks.md."""
