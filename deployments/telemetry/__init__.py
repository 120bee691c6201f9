"""Telemetry: traces and logs, the same on both sides of the contract."""
