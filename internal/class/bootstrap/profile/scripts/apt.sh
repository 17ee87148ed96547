#!/bin/sh
# Installs the kubelet package of this machine's version.
set -eu
version=$(sed -n 's/^KUBELET_VERSION=v//p' /etc/default/kubelet)
minor=v$(echo "$version" | cut -d . -f 1,2)
url=$(sed "s/{minor}/$minor/g" /etc/machinist/package-repository)
echo "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] $url /" >/etc/apt/sources.list.d/kubernetes.list
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 update
apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 -o Dpkg::Options::=--force-confold --yes \
  --allow-change-held-packages install "kubelet=$version-*"
# Machinist replaces machines to change the version.
apt-mark hold kubelet
