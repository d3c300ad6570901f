"""The service Backup: points of queues are read, and messages put back."""
