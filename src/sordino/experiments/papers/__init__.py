"""Published tables and figures, a folder a paper."""
