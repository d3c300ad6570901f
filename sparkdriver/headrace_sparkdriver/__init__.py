"""Kubernetes manifests of Spark drivers that run jobs of the pipeline."""
