"""Checks of the environment of a job: machine, Spark, workers, brokers."""
