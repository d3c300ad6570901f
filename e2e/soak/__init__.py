"""Real nodes for as long as one likes: load, faults, samples over time, and a report."""
