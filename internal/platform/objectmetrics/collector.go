// Package objectmetrics computes metrics from the cached objects at each scrape. A series therefore disappears together
// with its object.
package objectmetrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// timeout limits one scrape, because a read from an unfilled cache never returns.
const timeout = 5 * time.Second

// Export exports one series.
type Export func(desc *prometheus.Desc, value float64, labels ...string)

// Collector exports metrics after StartExport has been called. Only the leader may export the metrics, because all
// processes cache the same objects.
type Collector struct {
	descs []*prometheus.Desc
	count func(context.Context, Export) error
	leads atomic.Bool
}

// New returns a Collector that calls count at each scrape. If count returns an error, the scrape contains the metrics
// that count exported before the error.
func New(count func(context.Context, Export) error, descs ...*prometheus.Desc) *Collector {
	return &Collector{descs: descs, count: count}
}

// StartExport starts the export. Call it when this process becomes the leader.
func (c *Collector) StartExport() { c.leads.Store(true) }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	if !c.leads.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := c.count(ctx, func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	})
	if err != nil {
		logf.Log.WithName("metrics").Error(err, "Cannot count the objects of a metric")
	}
}
