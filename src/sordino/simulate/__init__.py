"""Simulation: thousands of clients as one compiled program."""
