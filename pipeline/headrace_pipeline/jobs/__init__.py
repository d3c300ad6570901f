"""Spark jobs: from options to sources, transforms and tables, until they are stopped."""
