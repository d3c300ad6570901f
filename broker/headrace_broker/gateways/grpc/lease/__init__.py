"""The service Lease: groups that take messages by lease."""
