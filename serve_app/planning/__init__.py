"""Capacity planning: how many replicas a load needs, by simulation on a virtual clock."""
