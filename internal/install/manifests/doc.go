// Package manifests renders the charts: for the operator, and for the demo and the tests, which so install what users
// install. A chart is the one place where the provider's name, namespaces and subjects are filled in.
package manifests
