#!/bin/sh
# Makes ready what test/ui drives beside the programs: Debian's chromium, which is installed as root if there is none, and
# axe-core, which finds barriers in pages, of the version and digest that test/ui/axe pins. Prints two lines:
#
#   the path of the browser
#   the path of axe-core's script
#
# CHROMIUM names another browser of its kind. axe-core is kept in
# ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/axe/<hash of its lock>.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "chromium: $*" >&2; exit 1; }

browser=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$browser" ]; then
	"$root/hack/debian.sh" chromium || die "install Chromium, or name it in CHROMIUM"
	browser=$(command -v chromium) || die "the package has no program of that name"
fi

lock=$root/test/ui/axe/package-lock.json
hash=$(git hash-object "$lock" | cut -c1-12)
[ -n "$hash" ] || die "cannot hash $lock: is git in PATH?"
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/axe
if [ ! -d "$cache/$hash" ]; then
	command -v npm >/dev/null || die "npm is needed, once, to fetch axe-core"
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	cp "$lock" "$root/test/ui/axe/package.json" "$new"
	# The lock has the digest, and names no registry: the one that npm is configured for is asked.
	(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund) >&2 || die "npm ci failed"
	mv -T "$new" "$cache/$hash" 2>/dev/null || [ -d "$cache/$hash" ] || die "cannot keep axe-core in $cache"
fi
echo "$browser"
echo "$cache/$hash/node_modules/axe-core/axe.min.js"
