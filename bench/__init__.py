"""Speed, reported as ratios that are measured in one run. `python -m bench` runs everything."""
