"""Devices: one room each, behind the protocols of `saccade.backend`."""
