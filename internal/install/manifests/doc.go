// Package manifests renders the charts for the operator, the demo and the tests. The operator, the demo and the tests
// thus install the same objects as users.
package manifests
