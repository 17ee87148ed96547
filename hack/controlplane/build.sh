#!/bin/sh
# Builds the control plane that the tests and the demo run (etcd,
# kube-apiserver, kube-controller-manager, kube-scheduler, kubectl) from the
# modules that go.mod beside this script pins, and with the argument "node"
# also the two that a node has of Kubernetes (kubelet, kube-proxy). With a
# version after "node" it also links kubelet-VERSION: the same kubelet, which
# only says that it is of that version, for tests of updates. They go into
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/controlplane/<version>-<hash>
#
# where <hash> covers go.mod, go.sum and this script: whatever changes the
# result makes a new folder. When all are there, the link <version> beside the
# folder is pointed to it; internal/controlplane follows that link.
#
# A binary that KUBEBUILDER_ASSETS contains is used from there and not built.
# Interrupting is safe (a binary gets its name when it is complete), so is
# running several at once. Folders may be deleted at any time.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/controlplane

say() { echo "controlplane: $*"; }
die() { echo "controlplane: $*" >&2; exit 1; }

command -v go >/dev/null || die "the go command is needed and is not in PATH"

version=$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/go.mod")
[ -n "$version" ] || die "no version of k8s.io/kubernetes in $here/go.mod"
major=$(echo "${version#v}" | cut -d. -f1)
minor=$(echo "${version#v}" | cut -d. -f2)

hash=$(cd "$here" && cat go.mod go.sum build.sh | git hash-object --stdin | cut -c1-12)
[ -n "$hash" ] || die "cannot hash the build's inputs: is git in PATH?"
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
dir=$cache/$version-$hash
mkdir -p "$dir"

# The lock spares two runs the same work; correctness does not hang on it.
if command -v flock >/dev/null; then
	exec 9>"$dir/.lock"
	if ! flock -n 9; then
		say "another build is running; waiting for it"
		flock 9
	fi
	rm -f "$dir"/.*.tmp* # left behind by a run that was killed
fi

tmp=
trap '[ -z "$tmp" ] || rm -f "$tmp" "$tmp.log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Without these every client would see version v0.0.0-master, and the API
# server would emulate that.
flags_of() { # VERSION
	ldflags="-s -w"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		ldflags="$ldflags -X $package.gitVersion=$1 -X $package.gitMajor=$major -X $package.gitMinor=$minor"
		ldflags="$ldflags -X $package.gitCommit= -X $package.gitTreeState=clean"
	done
}
flags_of "$version"

# build NAME PACKAGE
build() {
	if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$1" ]; then
		say "$1: using $KUBEBUILDER_ASSETS/$1"
		return
	fi
	if [ -x "$dir/$1" ]; then
		return
	fi
	say "$1: building"
	started=$(date +%s)
	tmp=$dir/.$1.$$.tmp
	(
		# Programs for this machine, whatever the caller cross-compiles. With
		# GOGC the compiler needs a fifth less of the processor, and more memory.
		unset GOOS GOARCH
		cd "$here" && GOWORK=off GOFLAGS='' GOGC=400 CGO_ENABLED=0 \
			go build -mod=readonly -buildvcs=false -trimpath -ldflags "$ldflags" -o "$tmp" "$2"
	) >"$tmp.log" 2>&1 9>&- || {
		cat "$tmp.log" >&2
		die "building $1 failed"
	}
	mv -f "$tmp" "$dir/$1"
	rm -f "$tmp.log"
	tmp=
	built=yes
	say "$1: built in $(($(date +%s) - started)) s"
}

begun=$(date +%s)
built=
if [ ! -x "$dir/kube-apiserver" ]; then
	say "building $version into $dir; about five minutes the first time"
fi
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
build kubectl k8s.io/kubernetes/cmd/kubectl
if [ "${1:-}" = node ]; then
	build kubelet k8s.io/kubernetes/cmd/kubelet
	build kube-proxy k8s.io/kubernetes/cmd/kube-proxy
	if [ -n "${2:-}" ]; then
		case $2 in
		v"$major.$minor".[0-9]*) ;;
		*) die "a kubelet cannot be called $2: only another patch release of $version behaves like it" ;;
		esac
		flags_of "$2"
		build "kubelet-$2" k8s.io/kubernetes/cmd/kubelet
	fi
fi

# Not ln -sf: that removes the old link first, and a reader may look just then.
link=$cache/.$version.$$
ln -s "$version-$hash" "$link"
if mv -fT "$link" "$cache/$version" 2>/dev/null; then :; else
	# mv of other systems has no -T; theirs takes -h for "do not follow".
	mv -fh "$link" "$cache/$version"
fi

if [ -n "$built" ]; then
	say "$version is ready in $dir after $(($(date +%s) - begun)) s"
else
	say "$version is ready in $dir"
fi
