"""Paper 2: no trusted server."""
