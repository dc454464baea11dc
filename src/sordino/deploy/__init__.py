"""The same turns on real machines: a server that asks, and nodes that decide."""
