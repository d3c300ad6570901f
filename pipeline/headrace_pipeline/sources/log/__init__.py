"""The source `headrace_log`: rows of the logs that a broker exports."""
