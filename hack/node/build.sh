#!/bin/sh
# Makes ready what test/realnode runs in addition to the control plane (hack/controlplane): kubelet, kube-proxy and
# kubeadm, and of the modules that go.mod beside this script pins containerd, its shim for runc, and CoreDNS. Links to
# these are in
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/node
#
# Its folder images-of-kubeadm has an OCI layout of each image that kubeadm uses, made of these programs.
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

(cd "$here/../.." && go run ./hack/build controlplane etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy kubeadm)
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
"$cache/layout" pause:1 "$cache/pause-image" "$(readlink -f "$cache/pause")"

# The images that kubeadm asks for, by the names that it gives them.
programs=$(dirname "$cache")/controlplane/$(sed -n 's/^.*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/../controlplane/go.mod")
image() { # NAME:TAG FILE[:PATH]...
	folder=$cache/images-of-kubeadm/$(echo "$1" | tr '/:' '__')
	made=$(for file in "$@"; do readlink -f "${file%%:*}"; done | git hash-object --stdin)
	[ "$(cat "$folder/made" 2>/dev/null)" != "$made" ] || return 0
	name=$1
	shift
	"$cache/layout" -system "$name" "$folder" "$@"
	echo "$made" >"$folder/made"
}
# kube-proxy calls nft or, in its older mode, iptables, whose names all lead to one program with many plugins.
packet_filters() {
	echo /usr/sbin/nft:/usr/sbin/nft /usr/sbin/xtables-nft-multi:/usr/sbin/xtables-nft-multi
	for name in iptables ip6tables; do
		for suffix in '' -save -restore; do
			echo "/usr/sbin/$name-nft$suffix:/usr/sbin/$name$suffix"
		done
	done
	for plugin in /usr/lib/*-linux-gnu/xtables/*.so; do
		echo "$plugin:$plugin"
	done
}
images=$("$programs/kubeadm" config images list --kubernetes-version "$(basename "$programs")")
for image in $images; do
	image=${image#*/} name=${image%:*} name=${name##*/}
	case $name in
	pause | coredns) image "$image" "$(readlink -f "$cache/$name"):/$name" ;;
	# shellcheck disable=SC2046 # a list
	kube-proxy) image "$image" "$programs/$name:/usr/local/bin/$name" $(packet_filters) ;;
	*) image "$image" "$programs/$name:/usr/local/bin/$name" ;;
	esac
done
