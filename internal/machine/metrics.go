package machine

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// The following constants are values of the label phase of the metric machinist_machine_phase_duration_seconds.
const (
	phaseLaunch       = "launch"
	phaseRegistration = "registration"
	phaseDrain        = "drain"
	phaseVolumeDetach = "volume_detach"
	phaseTermination  = "termination"
	phaseUpdate       = "update"
	// spanJoin is the time from the creation of the Machine until it is Running. The span has its own metric.
	spanJoin = "join"
)

// skippedWithoutProvider is the reason for Machines that have no provider because their class does not exist.
const skippedWithoutProvider = "NoProvider"

// durationBuckets are in seconds. Times in the API are whole seconds, so smaller buckets would be useless.
func durationBuckets() []float64 {
	return []float64{1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600, 7200}
}

// Metrics contains the metrics of the Machines of one provider. A nil *Metrics counts nothing.
type Metrics struct {
	phases        *prometheus.HistogramVec
	joins         prometheus.Histogram
	interruptions *prometheus.CounterVec
	machineCounts *objectmetrics.Collector
}

// NewMetrics registers the metrics. The metrics that count Machines are computed from the cache when they are
// collected.
func NewMetrics(registerer prometheus.Registerer, provider string, cache client.Reader,
	requireTypeVersion bool) (*Metrics, error) {
	m := &Metrics{
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "machinist_machine_phase_duration_seconds",
			Help:    "Time that a machine spends in a phase.",
			Buckets: durationBuckets(),
		}, []string{"phase"}),
		joins: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "machinist_machine_join_duration_seconds",
			Help:    "Time from the creation of a Machine until it was Running, or Available without a target cluster.",
			Buckets: durationBuckets(),
		}),
		interruptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "machinist_interruptions_total",
			Help: "Machines for which the cloud announced that it will reclaim the instance, by reason.",
		}, []string{"reason"}),
		machineCounts: newMachineCounts(provider, cache, requireTypeVersion),
	}
	for _, phase := range []string{phaseLaunch, phaseRegistration, phaseDrain, phaseVolumeDetach, phaseTermination,
		phaseUpdate} {
		m.phases.WithLabelValues(phase)
	}
	for _, reason := range []string{v1beta1.ReasonPreemptionNotice, v1beta1.ReasonTerminationNotice} {
		m.interruptions.WithLabelValues(reason)
	}
	for _, c := range []prometheus.Collector{m.phases, m.joins, m.interruptions, m.machineCounts} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of machines: %w", err)
		}
	}
	return m, nil
}

// startLeading records that this process leads. Only the leader exports the counts of Machines.
func (m *Metrics) startLeading() {
	if m != nil {
		m.machineCounts.StartExport()
	}
}

func (m *Metrics) countInterruption(reason string) {
	if m != nil && reason != "" {
		m.interruptions.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) observe(s span) {
	switch {
	case m == nil:
	case s.phase == spanJoin:
		m.joins.Observe(s.took.Seconds())
	default:
		m.phases.WithLabelValues(s.phase).Observe(s.took.Seconds())
	}
}

type span struct {
	phase string
	began time.Time
	took  time.Duration
}

// phaseEnded records that a phase has ended now. The metric is updated only after the status is written, so that each
// phase is counted once.
func (p *pass) phaseEnded(phase string, began time.Time) {
	p.spans = append(p.spans, span{phase, began, max(p.Clock.Now().Sub(began), 0)})
}

func (p *pass) observeSpans() {
	for _, ended := range p.spans {
		p.Metrics.observe(ended)
	}
	p.spans = nil
}

// measurePhase must be called before each change of a condition. If the change ends a phase, measurePhase records the
// phase.
func (p *pass) measurePhase(kind string, status bool, reason string) {
	old := meta.FindStatusCondition(p.machine.Status.Conditions, kind)
	if !status || old != nil && old.Status == metav1.ConditionTrue {
		return
	}
	// The start time is the time at which the condition became False. If a preceding condition is named, it is the time
	// at which that condition became True.
	since := func(follows string) time.Time {
		c := old
		if follows != "" {
			c = meta.FindStatusCondition(p.machine.Status.Conditions, follows)
		}
		if c == nil {
			return p.now
		}
		return c.LastTransitionTime.Time
	}
	switch {
	case kind == v1beta1.ConditionLaunched && p.machine.Status.FailureReason != v1beta1.FailureInstanceVanished:
		p.phaseEnded(phaseLaunch, attemptStart(p.machine))
	case kind == v1beta1.ConditionRegistered && p.original.Status.NodeRef == nil:
		p.phaseEnded(phaseRegistration, since(v1beta1.ConditionLaunched))
	case kind == v1beta1.ConditionDrained && reason == v1beta1.ReasonDrained:
		p.phaseEnded(phaseDrain, since(""))
	case kind == v1beta1.ConditionVolumesDetached && reason == v1beta1.ReasonVolumesDetached:
		p.phaseEnded(phaseVolumeDetach, since(v1beta1.ConditionDrained))
	case kind == v1beta1.ConditionUpToDate && old != nil && old.Reason == v1beta1.ReasonReplacing:
		p.phaseEnded(phaseUpdate, since(""))
	}
}

// updateBegan returns the time at which the instance was first found to differ from the spec. For a change that is
// applied at once, updateBegan returns the current time.
func updateBegan(m *v1beta1.Machine, now time.Time) time.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return now
}
