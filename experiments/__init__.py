"""Paper experiments that are code, run from the root of a clone; those that are data are in sordino.experiments."""
