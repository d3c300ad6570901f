"""`headrace backup` and `headrace restore`: messages of queues, to files and back."""
