"""Federated methods, one family a file. Pure functions; no loop over clients or rounds."""
