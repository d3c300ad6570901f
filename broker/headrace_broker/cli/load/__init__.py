"""`headrace perf|publish|consume`: messages in and out, from a command line."""
