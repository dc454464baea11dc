"""Tables, pages and pictures of runs, certificates and result files."""
