"""Generated from protos/headrace/cluster/v1 by protos/generate.sh; do not edit."""
