"""Generated from protos/headrace/client/v1 by protos/generate.sh; do not edit."""
