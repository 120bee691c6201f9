"""How the bundled models learn the little world: `python -m training.trainer.train MODEL`."""
