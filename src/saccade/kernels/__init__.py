"""How operators are done: the shared contract, and a room for each device."""
