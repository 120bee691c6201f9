"""Shared Ray clusters: deployment, preflight, weights."""
