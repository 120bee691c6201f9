"""How well the bundled models do: they are asked for pictures the way the service asks, and the pictures are graded.

python -m training.evaluation flux3 flux2klein
"""
