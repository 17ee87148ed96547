// Package monitoring contains the alerts and dashboards of Machinist. Their sources are rules/*.yaml and
// dashboards/*.yaml. hack/monitoring generates config/monitoring, the copies in charts/machinist, and the list of
// runbooks from them.
//
// The files in rules have the format of Prometheus with two differences. An expression may contain a comparison
// with a duration, as in "> 30m". The duration is converted to a number of seconds. The generator adds the
// annotation runbook_url. The runbook of each alert is docs/runbooks/<alert>.md.
package monitoring
