"""Values, errors and limits that core, storage, transport and node share."""
