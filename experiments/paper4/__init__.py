"""Paper 4: alpha-NormEC."""
