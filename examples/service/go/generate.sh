#!/bin/sh
# Generate the stubs with protoc from grpcio-tools; the Go plugins are built at the versions of go.mod.
set -eu
cd "$(dirname "$0")"
proto=../../../proto
package=goffish.example/client/goffishv1
options=module=goffish.example/client
for file in jobs planning catalog dataflows flows; do
    options=$options,Mgoffish/v1/$file.proto=$package
done
"${PYTHON:-python3}" -m grpc_tools.protoc -I"$proto" \
    --plugin="protoc-gen-go=$(go tool -n protoc-gen-go)" --go_out=. --go_opt="$options" \
    --plugin="protoc-gen-go-grpc=$(go tool -n protoc-gen-go-grpc)" --go-grpc_out=. --go-grpc_opt="$options" \
    "$proto"/goffish/v1/*.proto
