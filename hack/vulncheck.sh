#!/bin/sh
# Runs govulncheck for all modules of the workspace, including their tests. hack/tools/go.mod pins the version of
# govulncheck. If the script cannot reach the vulnerability database, it reports that it has checked nothing, and
# succeeds. GOVULNDB can contain the URL of a required database, such as https://vuln.go.dev, or of a copy, such as
# file:///path/to/vulndb. If the script cannot reach a required database, it fails.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
db=${GOVULNDB:-https://vuln.go.dev}
unchecked() {
	if [ -n "${GOVULNDB:-}" ]; then
		echo "nothing was checked for known vulnerabilities: cannot reach the database that GOVULNDB requires: $db" >&2
		exit 1
	fi
	echo "SKIPPED: nothing was checked for known vulnerabilities: cannot reach the vulnerability database"
	exit 0
}
# Check first whether the database can be reached. Otherwise, the script would build the tool for nothing.
case $db in
http*) ! command -v curl >/dev/null || curl -sfL -m 30 -o /dev/null "$db/index/db.json" || unchecked ;;
esac
check=$("$root/hack/tool.sh" tools golang.org/x/vuln/cmd/govulncheck)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for module in . api providers/azure providers/libvirt providers/openstack providers/vsphere; do
	echo "== govulncheck in $module"
	if (cd "$root/$module" && "$check" -db "$db" -test ./...) >"$log" 2>&1; then
		cat "$log"
		continue
	fi
	cat "$log"
	# If the output lacks this line, govulncheck found a vulnerability or could not load the code.
	grep -q 'fetching vulnerabilities:' "$log" || exit 1
	unchecked
done
