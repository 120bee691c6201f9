"""Checks of the preflight, one file for each part of the service."""
