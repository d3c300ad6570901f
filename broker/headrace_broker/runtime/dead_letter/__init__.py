"""Dead letters: published from the leader of a queue to where they go."""
