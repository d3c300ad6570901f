"""The web page: its files, its log-in, and the events that keep it up to date."""
