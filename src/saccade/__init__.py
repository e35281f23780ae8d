"""Saccade compiles vision models and vision operators to the machine they run on."""
