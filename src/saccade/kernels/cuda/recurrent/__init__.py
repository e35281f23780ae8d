"""Layers that walk through time."""
