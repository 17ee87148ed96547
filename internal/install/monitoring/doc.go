// Package monitoring contains the alerts and dashboards of Machinist. The sources of the alerts and dashboards are
// rules/*.yaml and dashboards/*.yaml. From these, hack/monitoring generates config/monitoring, the copies in
// charts/machinist, and the list of runbooks.
//
// Rule files have the format of Prometheus with one addition: an expression may compare with a duration, as in "> 30m".
// The generator converts the duration to seconds and adds the annotation runbook_url. The runbook of each alert is
// docs/runbooks/<alert>.md.
package monitoring
