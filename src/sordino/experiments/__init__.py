"""Published tables and figures: specs under papers/ (data, not code) and one runner."""
