"""Plan to program: what runs."""
