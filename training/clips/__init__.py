"""The moving world: one thing on a plain background that moves as it is told, and a tone that goes with it.

What the bundled video model is trained on (`train`) and examined with (`evaluation`).
"""
