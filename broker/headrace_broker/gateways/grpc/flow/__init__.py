"""The services Flow and Advice: stopped publishers, limits, causes, and advised limits."""
