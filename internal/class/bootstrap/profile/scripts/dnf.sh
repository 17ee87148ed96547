#!/bin/sh
# Installs the kubelet package of this machine's version.
set -eu
version=$(sed -n 's/^KUBELET_VERSION=v//p' /etc/default/kubelet)
minor=v$(echo "$version" | cut -d . -f 1,2)
url=$(sed "s/{minor}/$minor/g" /etc/machinist/package-repository)
# Updates of the system leave the kubelet alone: Machinist replaces machines to change the version.
cat >/etc/yum.repos.d/kubernetes.repo <<EOF
[kubernetes]
name=Kubernetes
baseurl=$url
enabled=1
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/kubernetes.asc
exclude=kubelet
EOF
dnf install --assumeyes --setopt=retries=5 --disableexcludes=kubernetes "kubelet-$version"
