#!/bin/sh
# Runs tests with gotestsum: pass its flags first, and the flags of go test after --. In CI, the script also records the
# result of each test, in the folder TEST_RECORDS.
set -eu
sum=$("$(dirname "$0")/tool.sh" tools gotest.tools/gotestsum)
[ -z "${TEST_RECORDS:-}" ] || set -- --jsonfile "$(mktemp "$TEST_RECORDS/XXXXXX")" "$@"
exec "$sum" "$@"
