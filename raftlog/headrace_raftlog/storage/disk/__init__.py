"""The seam to the file system: files, reads beside the event loop, detection of a hanging disk."""
