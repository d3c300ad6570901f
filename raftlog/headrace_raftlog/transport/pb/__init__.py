"""Generated from protos/headrace/raftlog/v1 by protos/generate.sh; do not edit."""
