#!/bin/sh
# Generates the Python modules of all .proto files below OUTDIR, laid out as in the repository:
#
#   protos/generate.sh .          regenerates the working tree
#   protos/generate.sh /tmp/out   for a comparison with what is committed
#
# The protobuf names stay the canonical ones (headrace/raftlog/v1/...), while the modules live inside
# the package that uses them; so the imports between generated modules are rewritten to that package.
# Needs grpcio-tools and mypy-protobuf in the environment of $PYTHON (default: python3).
set -eu

out=${1:?usage: protos/generate.sh OUTDIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
python=$(command -v "${PYTHON:-python3}")
bin=$(dirname "$python")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# package PROTO_DIR TARGET_DIR
package() {
    target=$out/$2
    rm -rf "$target"
    mkdir -p "$target"
    for proto in "$here/$1"/*.proto; do
        services=
        if grep -q '^service ' "$proto"; then
            services="--grpc_python_out=$work --mypy_grpc_out=quiet:$work"
        fi
        # shellcheck disable=SC2086  # several words on purpose
        "$python" -m grpc_tools.protoc -I "$here" \
            --plugin=protoc-gen-mypy="$bin/protoc-gen-mypy" \
            --plugin=protoc-gen-mypy_grpc="$bin/protoc-gen-mypy_grpc" \
            --python_out="$work" --mypy_out=quiet:"$work" ${services} "$proto"
    done
    mv "$work/$1"/*.py "$work/$1"/*.pyi "$target/"
    printf '"""Generated from protos/%s by protos/generate.sh; do not edit."""\n' "$1" \
        >"$target/__init__.py"
}

rewrite_imports() {
    find "$out/$1" -name '*_pb2*.py*' -not -name '*.pyc' -exec sed -i \
        -e 's/^from headrace\.raftlog\.v1 import/from headrace_raftlog.transport.pb import/' \
        -e 's/^from headrace\.cluster\.v1 import/from headrace_broker.runtime.pb import/' \
        {} +
}

raftlog_pb=raftlog/headrace_raftlog/transport/pb
broker_pb=broker/headrace_broker/runtime/pb
package headrace/raftlog/v1 "$raftlog_pb"
package headrace/cluster/v1 "$broker_pb"
rewrite_imports "$raftlog_pb"
rewrite_imports "$broker_pb"
