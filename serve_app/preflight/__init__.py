"""Whether a cluster, its Redis and its object store are fit to serve, looked at before anything is served."""
