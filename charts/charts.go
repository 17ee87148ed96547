// Package charts contains the Helm charts of the processes as an embedded file system. The demo, the tests and the
// operator render these charts to install the processes.
package charts

import "embed"

// Files is a file system with one folder for each chart. Without `all:`, the embed directive would leave out files
// whose names begin with an underscore.
//
//go:embed all:machinist all:machinist-provider
var Files embed.FS

// Names of the charts.
const (
	Machinist = "machinist"
	Provider  = "machinist-provider"
)
