"""Experiments of paper 3 that are code."""
