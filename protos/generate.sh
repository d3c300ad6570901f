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

# package PROTO_DIR TARGET_DIR...
package() {
    protos=$1
    shift
    for proto in "$here/$protos"/*.proto; do
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
    for folder in "$@"; do
        target=$out/$folder
        rm -rf "$target"
        mkdir -p "$target"
        cp "$work/$protos"/*.py "$work/$protos"/*.pyi "$target/"
        printf '"""Generated from protos/%s by protos/generate.sh; do not edit."""\n' "$protos" \
            >"$target/__init__.py"
        rewrite_imports "$folder" "$protos"
    done
}

# rewrite_imports TARGET_DIR PROTO_DIR: what lies in TARGET_DIR imports its neighbours from there
rewrite_imports() {
    name=$(echo "$2" | tr / .)
    module=$(echo "${1#*/}" | tr / .)
    find "$out/$1" -name '*_pb2*.py*' -not -name '*.pyc' -exec sed -i \
        -e "s/^from $name import/from $module import/" \
        {} +
}

package headrace/raftlog/v1 raftlog/headrace_raftlog/transport/pb
package headrace/cluster/v1 broker/headrace_broker/runtime/pb
package headrace/broker/v1 broker/headrace_broker/gateways/grpc/pb client/headrace_client/pb
package headrace/client/v1 client/headrace_client/status_pb
