// Package charts embeds the Helm charts of the processes, from which everything else that installs them is rendered:
// the demo, the tests and the operator.
package charts

import "embed"

// Files are the charts, each in a folder of its name. The prefix all: brings the files that begin with an underscore.
//
//go:embed all:machinist all:machinist-provider
var Files embed.FS

// Names of the charts.
const (
	Machinist = "machinist"
	Provider  = "machinist-provider"
)
