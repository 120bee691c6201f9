"""How the bundled models learn the little world: `python -m deployments.bundled.training.train MODEL`."""
