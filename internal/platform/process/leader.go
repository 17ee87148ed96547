package process

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// leader exports whether this process was elected and its Lease is certainly still valid.
type leader struct {
	*Process
	desc *prometheus.Desc
}

// watchLeader registers the metric machinist_leader. watchLeader replaces the metric of an earlier Process in the
// same program.
func (p *Process) watchLeader() error {
	l := leader{p, prometheus.NewDesc("machinist_leader",
		"1 while this process leads, 0 while it waits to be elected, by the name of the program.", []string{"process"}, nil)}
	p.options.Registerer.Unregister(l)
	if err := p.options.Registerer.Register(l); err != nil {
		return fmt.Errorf("register metric machinist_leader: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (l leader) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect implements prometheus.Collector.
func (l leader) Collect(metrics chan<- prometheus.Metric) {
	value := 0.0
	if l.leads() {
		value = 1
	}
	metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, value, l.config.Name)
}

func (p *Process) leads() bool {
	select {
	case <-p.manager.Elected():
		return p.fence.Check() == nil
	default:
		return false
	}
}
