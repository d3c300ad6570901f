"""The HTTP server: requests, who makes them, answers, lists in parts, and the OpenAPI document."""
