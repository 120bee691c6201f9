"""What replicas load: which checkpoints the settings come to, whether they are on a machine, and fetching them."""
