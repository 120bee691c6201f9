"""What the service tells Prometheus. A series is declared (`declared.py`), and read from the task store when asked."""
