"""Histories of chaos runs judged by TLC, a model checker that is not ours."""
