"""Values, reply codes and limits of the broker that every package may use."""
