"""Trains the bundled models, and writes what they have learnt into their checkpoints.

One course (`course`) for all of them: a learner, which has networks and a loss, and a data set of `training.lessons`.
"""
