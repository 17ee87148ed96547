#!/bin/sh
# Builds the programs that test/realnode runs. hack/controlplane provides kubelet, kube-proxy, kubeadm and the control
# plane. go.mod in this folder pins containerd, its shim for runc, and CoreDNS. The links to the programs of a node are
# in
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/node
#
# The subfolder images-of-kubeadm contains an OCI layout for each image that kubeadm uses. The images are built from
# these programs.
#
# runc, the CNI plugins and the tools that kubelet and kube-proxy call are Debian packages. The script installs missing
# packages, which requires root.
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
	# Name each package once, even if several of its files are missing.
	missing=$(echo "$missing" | tr ' ' '\n' | sort -u | tr '\n' ' ')
	# shellcheck disable=SC2086 # a list
	"$here/../debian.sh" $missing
fi

(cd "$here/../.." && go run ./hack/build controlplane etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy kubeadm)
mkdir -p "$cache"
# tool MODULE PACKAGE NAME builds a program and creates a link to it.
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
# The image for the first process of each pod.
"$cache/layout" pause:1 "$cache/pause-image" "$(readlink -f "$cache/pause")"

# The images that kubeadm pulls, with the names that kubeadm uses.
programs=$(dirname "$cache")/controlplane/$(sed -n 's/^.*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/../controlplane/go.mod")
image() { # NAME:TAG FILE[:PATH]...
	folder=$cache/images-of-kubeadm/$(echo "$1" | tr '/:' '__')
	inputs=$(for file in "$@"; do readlink -f "${file%%:*}"; done | git hash-object --stdin)
	[ "$(cat "$folder/made" 2>/dev/null)" != "$inputs" ] || return 0
	name=$1
	shift
	"$cache/layout" -system "$name" "$folder" "$@"
	echo "$inputs" >"$folder/made"
}
# kube-proxy calls nft or, in its older mode, iptables. The names of iptables are links to one program with many plugins.
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
