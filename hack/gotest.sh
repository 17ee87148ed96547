#!/bin/sh
# Runs tests by gotestsum, with its flags and after -- those of go test. In CI it also records what each test came to.
set -eu
sum=$("$(dirname "$0")/tool.sh" tools gotest.tools/gotestsum)
[ -z "${TEST_RECORDS:-}" ] || set -- --jsonfile "$(mktemp "$TEST_RECORDS/XXXXXX")" "$@"
exec "$sum" "$@"
