// Package charts embeds the Helm charts of the processes. The demo, the tests and the operator render these charts to
// install the processes.
package charts

import "embed"

// Files contains the charts, each in a folder with its name. The prefix all: includes files whose names begin with an
// underscore.
//
//go:embed all:machinist all:machinist-provider
var Files embed.FS

// Names of the charts.
const (
	Machinist = "machinist"
	Provider  = "machinist-provider"
)
