"""Generated from protos/headrace/broker/v1 by protos/generate.sh; do not edit."""
