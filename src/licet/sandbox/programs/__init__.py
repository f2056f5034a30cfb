"""Programs behind walls: how they are started and confined, and the proxy that is their only network."""
