"""Analyses and condensations as functions from DataFrames to DataFrames."""
