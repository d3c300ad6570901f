"""Archives of settled messages, and groups that read them."""
