package tracing

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const varQueue = "OTEL_BSP_MAX_QUEUE_SIZE"

const (
	resultSent    = "sent"
	resultFailed  = "failed"
	resultDropped = "dropped"
)

// queue limits the number of spans in the SDK's queue, and counts dropped spans. The SDK would drop spans without
// counting them.
type queue struct {
	sdktrace.SpanProcessor
	waiting *atomic.Int64
	most    int64
	spans   *prometheus.CounterVec
}

// NewMetrics creates and registers the metric of spans.
func NewMetrics(registerer prometheus.Registerer) (*prometheus.CounterVec, error) {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_trace_spans_total",
		Help: "Spans of traces by result: sent, failed to be sent, or dropped because the queue was full. Only if traces are enabled.",
	}, []string{"result"})
	for _, result := range []string{resultSent, resultFailed, resultDropped} {
		spans.WithLabelValues(result)
	}
	if err := registerer.Register(spans); err != nil {
		return nil, fmt.Errorf("register the metric of spans: %w", err)
	}
	return spans, nil
}

func newQueue(exporter sdktrace.SpanExporter, o Options) (*queue, error) {
	spans, err := NewMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	q := &queue{waiting: &atomic.Int64{}, most: sdktrace.DefaultMaxQueueSize, spans: spans}
	if n, err := strconv.ParseInt(os.Getenv(varQueue), 10, 64); err == nil && n > 0 {
		q.most = n
	}
	var options []sdktrace.BatchSpanProcessorOption
	if os.Getenv(varDelay) == "" {
		options = append(options, sdktrace.WithBatchTimeout(sendAfter))
	}
	sender := &sender{SpanExporter: exporter, queue: q, log: o.Log}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(sender, options...)
	return q, nil
}

// OnEnd implements sdktrace.SpanProcessor. OnEnd never blocks.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.most {
		q.waiting.Add(-1)
		q.spans.WithLabelValues(resultDropped).Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

type sender struct {
	sdktrace.SpanExporter
	queue *queue
	log   logr.Logger
	// failing is true after an error, until spans can be sent again. Both changes are logged once.
	failing atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter. ExportSpans never returns an error, because the SDK would report the
// error a second time.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	s.queue.waiting.Add(-int64(len(spans)))
	result := resultSent
	if err != nil {
		result = resultFailed
	}
	s.queue.spans.WithLabelValues(result).Add(float64(len(spans)))
	if before := s.failing.Swap(err != nil); err != nil && !before {
		s.log.Info("Cannot send traces: spans are lost until sending succeeds", "cause", redacted(err))
	} else if err == nil && before {
		s.log.Info("Traces are being sent again")
	}
	return nil
}

// addresses matches URLs. A URL may contain credentials before the host and in the query.
var addresses = regexp.MustCompile(`(https?://)(?:[^/\s@"]*@)?([^/\s?#"@:]+(?::[0-9]+)?)[^\s"]*`)

// redacted returns an error's message in one line of bounded length, without the parts of URLs that may be secret.
func redacted(err error) string {
	message := strings.Join(strings.Fields(addresses.ReplaceAllString(err.Error(), "$1$2")), " ")
	if len(message) > 256 {
		message = strings.ToValidUTF8(message[:256], "") + "…"
	}
	return message
}
