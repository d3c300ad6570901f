"""The seam to the file system: files, and reads beside the event loop."""
