// Package manifests renders the charts for the operator, the demo and the tests, so that all of them install the same
// objects as users do. Provider names, namespaces and subjects are filled in only by the charts.
package manifests
