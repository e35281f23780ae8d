"""Sources of graphs, one room each."""
