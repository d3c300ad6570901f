"""Kubernetes manifests, built from the specs of resources."""
