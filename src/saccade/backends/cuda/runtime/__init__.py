"""Plans on a GPU: memory, graphs and streams over the driver, with no compiler."""
