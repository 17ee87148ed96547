// Package versionskew checks the versions of kubelets against the API server of the cluster in which they register, by
// the version skew policy of Kubernetes (https://kubernetes.io/releases/version-skew-policy/).
package versionskew
