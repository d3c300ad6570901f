"""The services Flow and Advice: who is stopped, by what, and what limits should be."""
