#!/bin/sh
# Use the scheduling service from a shell with grpcurl; methods are discovered by server reflection.
#
#   grpcurl.sh list | describe NAME | submit ALGORITHM INPUT [KEY] | watch JOB | get JOB | plan DATAFLOW | health
#
# GOFFISH_SERVER, GOFFISH_TOKEN and GOFFISH_AUTHORITY as for goffish jobs. Tokens require TLS or a loopback address.
set -eu
server=${GOFFISH_SERVER:-127.0.0.1:7077}

call() { # call METHOD JSON
    if [ -n "${GOFFISH_AUTHORITY:-}" ]; then
        set -- -cacert "$GOFFISH_AUTHORITY" "$@"
    else
        set -- -plaintext "$@"
    fi
    if [ -n "${GOFFISH_TOKEN:-}" ]; then
        case ${GOFFISH_AUTHORITY:+tls}${server%:*} in
        tls* | 127.0.0.1 | '[::1]') ;;
        *)
            echo "error: $server: the token would be sent unencrypted; set GOFFISH_AUTHORITY, or use 127.0.0.1" >&2
            exit 2
            ;;
        esac
        # From the environment, so that the token is not visible in process lists.
        set -- -expand-headers -reflect-header 'authorization: Bearer ${GOFFISH_TOKEN}' \
            -rpc-header 'authorization: Bearer ${GOFFISH_TOKEN}' "$@"
    fi
    grpcurl "$@"
}

case ${1:-} in
list) call "$server" list ;;
describe) call "$server" describe "$2" ;;
submit)
    call -d "{\"client_key\": \"${4:-}\", \"spec\": {\"graph\": {\"algorithm\": \"$2\", \"input_uri\": \"$3\"}}}" \
        "$server" goffish.v1.JobService/Submit
    ;;
watch) call -d "{\"id\": \"$2\"}" "$server" goffish.v1.JobService/Watch ;;
get) call -d "{\"id\": \"$2\"}" "$server" goffish.v1.JobService/Get ;;
plan) call -d "{\"setting\": {\"dataflow_name\": \"$2\"}}" "$server" goffish.v1.PlanningService/Plan ;;
health) call -d '{"service": "goffish.v1.JobService"}' "$server" grpc.health.v1.Health/Check ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
