// Package objectmetrics exports metrics that are counted over the objects of a cache at each scrape. So a series never
// outlives its object, and no counters must be kept up to date between two scrapes.
package objectmetrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// timeout is how long one scrape may take. A cache that is not filled yet does not answer.
const timeout = 5 * time.Second

// Export exports one series.
type Export func(desc *prometheus.Desc, value float64, labels ...string)

// Collector exports metrics once Lead was called. A process that waits for its election has the same cache, and would
// count the same objects again.
type Collector struct {
	descs []*prometheus.Desc
	count func(context.Context, Export) error
	leads atomic.Bool
}

// New returns a Collector of the metrics that count exports. If count returns an error, the scrape contains only what
// it exported before.
func New(count func(context.Context, Export) error, descs ...*prometheus.Desc) *Collector {
	return &Collector{descs: descs, count: count}
}

// Lead starts the export, because this process now works on the objects.
func (c *Collector) Lead() { c.leads.Store(true) }

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
