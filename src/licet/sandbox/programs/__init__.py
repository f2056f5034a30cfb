"""Programs behind walls: what starts them, what holds them, and their only way out to the network."""
