"""Published tables and figures: specs in papers/ (data, not code), one runner, their pictures and pages."""
