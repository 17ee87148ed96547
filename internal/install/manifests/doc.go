// Package manifests renders the charts for the operator, the demo and the tests. All of them therefore install the
// same objects as users do. Provider names, namespaces and subjects are filled in only by the charts.
package manifests
