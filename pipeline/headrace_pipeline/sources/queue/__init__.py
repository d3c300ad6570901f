"""The source `headrace_queue`: messages of a live quorum queue, by leases of a group."""
