"""The Kubernetes operator of Headrace."""
