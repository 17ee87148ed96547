#!/bin/sh
# Prints the path of a tool, which is built once from the version that hack/<module>/go.mod pins:
#
#   hack/tool.sh <module> <package>
#
# It is kept in ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/tools/<hash of go.mod and go.sum>.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
module=$root/hack/$1 package=$2 name=${2##*/}
hash=$(cat "$module/go.mod" "$module/go.sum" | git hash-object --stdin | cut -c1-12)
[ -n "$hash" ] || { echo "tool: cannot hash $module: is git in PATH?" >&2; exit 1; }
tools=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/tools/$hash
if [ ! -x "$tools/$name" ]; then
	echo "tool: building $name, once" >&2
	mkdir -p "$tools"
	# It gets its name when it is complete, so that a build that was cut off is not taken for one.
	(cd "$module" && GOWORK=off CGO_ENABLED=0 go build -o "$tools/.$name.$$" "$package")
	mv "$tools/.$name.$$" "$tools/$name"
fi
echo "$tools/$name"
