"""Routes of publishes from an exchange to queues, remembered."""
