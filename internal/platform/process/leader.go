package process

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// leader exports whether this process leads: it was elected, and its lease is surely still its own.
type leader struct {
	*Process
	desc *prometheus.Desc
}

// watchLeader registers the metric machinist_leader, in the place of that of a Process before this one.
func (o *Process) watchLeader() error {
	l := leader{o, prometheus.NewDesc("machinist_leader",
		"1 while this process leads, 0 while it waits for its turn, by the name of its program.", []string{"process"}, nil)}
	o.options.Registerer.Unregister(l)
	if err := o.options.Registerer.Register(l); err != nil {
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

// leads reports whether this process was elected and may act.
func (o *Process) leads() bool {
	select {
	case <-o.manager.Elected():
		return o.fence.Check() == nil
	default:
		return false
	}
}
