"""What starts of a model leave for later ones: programs, code, packed weights."""
