"""Custom resources: their kinds, specs and statuses as types."""
