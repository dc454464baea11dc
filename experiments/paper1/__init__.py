"""Paper 1: FedEXP."""
