#!/bin/sh
# Prepares the tools that test/ui needs: Chromium, and axe-core, which finds accessibility problems in pages. If
# Chromium is missing, the script installs the Debian package, which requires root. test/ui/axe pins the version and the
# digest of axe-core. The script prints two lines:
#
#   the path of the browser
#   the path of the script of axe-core
#
# CHROMIUM can contain the path of another browser that is based on Chromium. axe-core is stored in
# ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/axe/<hash of package-lock.json>.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "chromium: $*" >&2; exit 1; }

browser=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$browser" ]; then
	"$root/hack/debian.sh" chromium || die "install Chromium, or set CHROMIUM to the path of a browser"
	browser=$(command -v chromium) || die "the package chromium has no program chromium"
fi

lock=$root/test/ui/axe/package-lock.json
hash=$(git hash-object "$lock" | cut -c1-12)
[ -n "$hash" ] || die "cannot hash $lock: is git in PATH?"
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/axe
if [ ! -d "$cache/$hash" ]; then
	command -v npm >/dev/null || die "npm is needed once, to download axe-core"
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	cp "$lock" "$root/test/ui/axe/package.json" "$new"
	# The lock file contains the digest and no registry, so npm asks the registry that it is configured for.
	(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund) >&2 || die "npm ci failed"
	mv -T "$new" "$cache/$hash" 2>/dev/null || [ -d "$cache/$hash" ] || die "cannot store axe-core in $cache"
fi
echo "$browser"
echo "$cache/$hash/node_modules/axe-core/axe.min.js"
