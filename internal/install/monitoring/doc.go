// Package monitoring has the alerts and dashboards of Machinist. The sources are rules/*.yaml and dashboards/*.yaml;
// hack/monitoring writes what follows from them: config/monitoring, the copies in charts/machinist, and the list of
// runbooks.
//
// The files of rules have the format of Prometheus with two differences. An expression may compare with a duration, as
// in "> 30m", which becomes a number of seconds. And the annotation runbook_url is added: each alert has the page
// docs/runbooks/<alert>.md.
package monitoring
