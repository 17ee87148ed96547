// Package objectmetrics exports metrics that are computed from the objects in a cache at each scrape. Therefore, a
// series disappears together with its object, and no counters must be updated between two scrapes.
package objectmetrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// timeout limits the duration of one scrape. A limit is needed because a read from a cache never returns if the
// cache is not filled.
const timeout = 5 * time.Second

// Export exports one series.
type Export func(desc *prometheus.Desc, value float64, labels ...string)

// Collector exports metrics after Lead has been called. All processes have the same objects in their caches, so
// only the leader may export the metrics.
type Collector struct {
	descs []*prometheus.Desc
	count func(context.Context, Export) error
	leads atomic.Bool
}

// New returns a Collector that calls the function count at each scrape to export the metrics. If count returns an
// error, the scrape contains only the metrics that count exported before the error.
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
