// Package versionskew compares the versions of kubelets with the version of the API server at which they register,
// according to the version skew policy of Kubernetes (https://kubernetes.io/releases/version-skew-policy/).
package versionskew
