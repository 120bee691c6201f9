"""Load for servers that make pictures and videos. It knows them by HTTP alone; docs/benchmarks.md explains it."""
