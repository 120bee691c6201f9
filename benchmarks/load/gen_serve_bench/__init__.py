"""Load for servers that make images and videos. It knows them by HTTP alone; docs/benchmarks.md explains it."""
