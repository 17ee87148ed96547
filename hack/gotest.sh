#!/bin/sh
# Runs tests with gotestsum. The arguments are the flags of gotestsum, followed by -- and the flags of go test. If
# TEST_RECORDS is set, as in CI, the script also records the result of each test in that folder.
set -eu
sum=$("$(dirname "$0")/tool.sh" tools gotest.tools/gotestsum)
[ -z "${TEST_RECORDS:-}" ] || set -- --jsonfile "$(mktemp "$TEST_RECORDS/XXXXXX")" "$@"
exec "$sum" "$@"
