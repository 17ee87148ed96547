#!/bin/sh
# Installs the kubelet of this machine's version, or of the version in the first argument, if its checksum is the one that
# was given for that version.
set -eu
target=/opt/bin/kubelet
version=${1:-$(sed -n 's/^KUBELET_VERSION=//p' /etc/default/kubelet)}
url=$(sed "s/{version}/$version/g" /etc/machinist/kubelet-url)
sum=$(awk -v version="$version" '$2 == version { print $1 }' /etc/machinist/kubelet-sha256)
if [ -z "$sum" ]; then
	echo "install-kubelet: no checksum was given for kubelet $version" >&2
	exit 1
fi
matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sum" ]; }
if matches "$target"; then
	exit 0
fi
mkdir -p /opt/bin
curl --fail --silent --show-error --location --retry 5 --output "$target.new" "$url"
if ! matches "$target.new"; then
	echo "install-kubelet: the file from $url does not have the checksum that was given for $version" >&2
	rm -f "$target.new"
	exit 1
fi
chmod 0755 "$target.new"
mv "$target.new" "$target"
if command -v restorecon >/dev/null; then
	restorecon -R /opt/bin
fi
