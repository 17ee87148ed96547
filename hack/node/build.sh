#!/bin/sh
# Makes ready what test/realnode runs beside the control plane (hack/controlplane): kubelet and kube-proxy, and of the
# modules that go.mod beside this script pins containerd, its shim for runc, and CoreDNS. Links to these are in
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/node
#
# runc, the CNI plugins and the tools that kubelet and kube-proxy call are Debian's: they are installed if one is missing,
# as root.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/node

say() { echo "node: $*"; }
die() { echo "node: $*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || die "a node needs Linux"

missing=
need() { # PACKAGE FILE...
	package=$1
	shift
	for file in "$@"; do
		command -v "$file" >/dev/null || [ -x "/usr/sbin/$file" ] || [ -x "$file" ] || missing="$missing $package"
	done
}
need runc runc
need containernetworking-plugins /usr/lib/cni/bridge /usr/lib/cni/host-local /usr/lib/cni/loopback /usr/lib/cni/portmap
need iproute2 ip
need iptables iptables
need nftables nft
need conntrack conntrack
need mount mount
if [ -n "$missing" ]; then
	# One word each, however many of a package's files were missing.
	missing=$(echo "$missing" | tr ' ' '\n' | sort -u | tr '\n' ' ')
	# shellcheck disable=SC2086 # a list
	"$here/../debian.sh" $missing
fi

(cd "$here/../.." && go run ./hack/build controlplane etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy)
mkdir -p "$cache"
# tool MODULE PACKAGE NAME
tool() {
	begun=$(date +%s)
	path=$("$here/../tool.sh" "$1" "$2")
	ln -sfn "$path" "$cache/$3"
	say "$3 is ready after $(($(date +%s) - begun)) s"
}
tool node github.com/containerd/containerd/v2/cmd/containerd containerd
tool node github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 containerd-shim-runc-v2
tool node ./coredns coredns
tool images . images # the registry

tool node ./pause pause
tool node ./layout layout
# The image of the process that every pod has.
"$cache/layout" "$cache/pause" pause:1 "$cache/pause-image"
