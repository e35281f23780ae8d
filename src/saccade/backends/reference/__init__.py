"""The same plans, step by step with NumPy references."""
