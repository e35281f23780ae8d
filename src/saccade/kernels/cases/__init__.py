"""Calls that every device's kernels are held against, a list for each family."""
