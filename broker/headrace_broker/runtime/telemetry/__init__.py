"""What a node notes about itself each second, and the logs on its disk in which others read it."""
