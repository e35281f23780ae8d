"""Elements by rank and by value, and where lists of them are."""
