"""What makes the site, the generated pages and the release, for a checkout."""
