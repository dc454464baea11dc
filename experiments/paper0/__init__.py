"""Experiments of paper 0 that are code."""
