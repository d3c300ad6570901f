"""Raft of one group: messages, proposals and ticks in, a Ready out; no I/O and no clock."""
