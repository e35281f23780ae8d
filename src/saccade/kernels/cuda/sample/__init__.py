"""Images sampled at given places."""
