"""Moderation of inputs and results."""
