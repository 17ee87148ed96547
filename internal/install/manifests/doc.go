// Package manifests renders the charts for the operator, the demo and the tests. They install the same objects as users
// do.
package manifests
