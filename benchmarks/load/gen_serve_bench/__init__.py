"""Load generator for servers that make images and videos, over HTTP only. docs/benchmarks.md describes it."""
