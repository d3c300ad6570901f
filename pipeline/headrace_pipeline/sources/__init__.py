"""Sources of Spark that read from a broker."""
