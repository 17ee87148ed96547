#!/bin/sh
# Prints the path of a tool. The first run builds the tool, in the version that hack/<module>/go.mod pins:
#
#   hack/tool.sh <module> <package>
#
# If <package> begins with a dot, it is a folder of that module. The tool in the package . has the name of the module. The
# file "tags" of the module, if it exists, contains build tags. The tool is stored in
# ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/tools/<hash of go.mod, go.sum, tags and the files of the folder>.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
module=$root/hack/$1 package=$2 name=${2##*/}
sources=
case $package in
.) sources=$module/*.go name=$1 ;;
./*) sources=$module/${package#./}/*.go ;;
esac
tags=
if [ -f "$module/tags" ]; then
	tags=$(cat "$module/tags") sources="$sources $module/tags"
fi
# shellcheck disable=SC2086 # sources is a pattern or empty
hash=$(cat "$module/go.mod" "$module/go.sum" $sources | git hash-object --stdin | cut -c1-12)
[ -n "$hash" ] || { echo "tool: cannot hash $module: is git in PATH?" >&2; exit 1; }
tools=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/tools/$hash
if [ ! -x "$tools/$name" ]; then
	echo "tool: building $name; later runs use the cached program" >&2
	mkdir -p "$tools"
	# The tool gets its name when it is complete, so that an interrupted build leaves no broken tool. With GOGC=400, the
	# compiler needs a fifth less processor time, and more memory.
	(cd "$module" && GOWORK=off CGO_ENABLED=0 GOGC=400 go build -trimpath -tags "$tags" -ldflags "-s -w" -o "$tools/.$name.$$" "$package")
	mv "$tools/.$name.$$" "$tools/$name"
fi
echo "$tools/$name"
