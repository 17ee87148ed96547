package machine

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/tracing"
)

// These constants are the names of the spans for the steps of an operation.
const (
	stepLaunch     = "launch"
	stepBoot       = "boot"
	stepNodeReady  = "node ready"
	stepInitialise = "initialise"
	stepDrain      = "drain"
	stepVolumes    = "volumes"
	stepRemove     = "remove"
)

const codeNeverRan = "Canceled"

// traceStep adds the operations, steps and waits that have ended in this pass to the trace. It does not affect the
// other steps of the pass.
type traceStep struct {
	*pass
	// operation is the current operation on the Machine. The second field is the step of this operation at the
	// beginning of the pass.
	operation tracing.Operation
	at        string
	finished  tracing.Operation
}

func (s *traceStep) beginPass(ctx context.Context) context.Context {
	if !s.Tracer.IsEnabled() {
		return ctx
	}
	s.operation, s.at = s.operationOf(), s.stepOf()
	return s.Tracer.WithStep(ctx, s.operation, s.at, s.about())
}

func (s *traceStep) about() []attribute.KeyValue { return tracing.MachineAttributes(s.machine) }

func (s *traceStep) operationOf() tracing.Operation {
	m := s.machine
	changed := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	switch {
	case !m.DeletionTimestamp.IsZero():
		return tracing.Delete(m.UID)
	case m.IsReplacing():
		return tracing.Replace(m.UID, m.NextLaunchAttempt())
	case m.Status.FailureReason == v1beta1.FailureInstanceVanished:
		return tracing.Operation{}
	case s.hasRun() && changed != nil && changed.Status == metav1.ConditionFalse:
		return tracing.Update(m.UID, changed.LastTransitionTime.Unix())
	case s.hasRun():
		return tracing.Operation{}
	case s.isReplacement():
		return tracing.Replace(m.UID, m.LaunchAttempt())
	}
	return tracing.Create(m.UID)
}

// isReplacement reports whether the Machine ran on another instance before. When the new instance runs, the status no
// longer shows whether the old instance failed for lack of capacity. Another process does not know the cause of a
// replacement that it did not start.
func (s *traceStep) isReplacement() bool {
	m := s.machine
	if m.LaunchAttempt() == 1 || m.Status.Launch.OldProviderID == "" || lacksCapacity(m) {
		return false
	}
	known := s.traces.Get(m)
	return !known.retried
}

func (s *traceStep) stepOf() string {
	switch {
	case !s.machine.DeletionTimestamp.IsZero(), s.machine.IsReplacing():
		return stepRemove
	case s.hasRun():
		return ""
	case s.isTrue(v1beta1.ConditionLaunched):
		return stepBoot
	}
	return stepLaunch
}

func (s *traceStep) traceUpdate(ctx context.Context) context.Context {
	if !s.Tracer.IsEnabled() {
		return ctx
	}
	s.operation = tracing.Update(s.machine.UID, updateBegan(s.machine, s.now).Unix())
	return s.Tracer.WithStep(ctx, s.operation, "", s.about())
}

// statusWritten must be called after each write of the status. statusWritten exports the steps and operations that
// ended with this write.
func (s *traceStep) statusWritten(before *v1beta1.Machine, ended []span) {
	if !s.Tracer.IsEnabled() {
		return
	}
	for _, e := range ended {
		switch {
		case e.phase == phaseLaunch:
			s.traces.Update(s.machine, func(t *traceState) { t.launched = e.began.Add(e.took) })
		case e.phase == phaseUpdate && !replacing(before):
			s.Tracer.Finish(tracing.Update(s.machine.UID, e.began.Unix()), s.about(),
				tracing.Span{Start: e.began, End: e.began.Add(e.took)})
		}
	}
	s.reportWait(before)
	if !s.finished.IsZero() {
		s.reportFinished()
	}
}

func replacing(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonReplacing
}

// reportWait must be called after each write of the status. If the Machine has stopped waiting for something,
// reportWait reports how long the wait took.
func (s *traceStep) reportWait(before *v1beta1.Machine) {
	was, is, now := waitsFor(before), waitsFor(s.machine), s.Clock.Now()
	if was == nil && is == nil || was != nil && is != nil && was.Reason == is.Reason {
		return
	}
	if was != nil && !s.operation.IsZero() {
		since, known := was.LastTransitionTime.Time, s.traces.Get(s.machine)
		switch {
		case known.reason == was.Reason:
			since = known.since
		case since.Before(s.leading):
			since = s.leading // Another process may have seen another reason in between.
		}
		step := s.at
		if step == stepRemove {
			step = "" // The wait may continue in another step.
		}
		s.Tracer.Report(s.operation, step, s.about(),
			tracing.Span{Name: "wait " + was.Reason, Start: since, End: now, Reason: was.Reason})
	}
	s.traces.Update(s.machine, func(t *traceState) {
		t.reason, t.since = "", time.Time{}
		if is != nil {
			t.reason, t.since = is.Reason, now
		}
	})
}

// waitsFor returns the condition that shows what the Machine waits for, or nil if it waits for nothing. The result is
// usually the condition Ready. During a drain, the result is the condition Drained, which contains more details.
func waitsFor(m *v1beta1.Machine) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return nil
	}
	if drained := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained); drained != nil &&
		drained.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonDraining {
		return drained
	}
	return c
}

// reportFinished reports an operation that has ended because the Machine runs. The start and end of the operation come
// from the status of the Machine.
func (s *traceStep) reportFinished() {
	m, known, now := s.machine, s.traces.Get(s.machine), s.Clock.Now()
	launched := known.launched
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); launched.IsZero() && c != nil {
		launched = c.LastTransitionTime.Time
	}
	start := m.CreationTimestamp.Time
	steps := stepSequence{at: start, end: now}
	if s.finished == tracing.Replace(m.UID, m.LaunchAttempt()) {
		// The first steps of a replacement were already reported when the old instance disappeared.
		start, steps.at = known.replaceBegan, known.launchBegan
		if start.IsZero() {
			start, steps.at = launched, launched
		}
	}
	steps.until(stepLaunch, launched)
	if s.node != nil {
		steps.until(stepBoot, s.node.CreationTimestamp.Time)
		if c := readyCondition(s.node); c != nil && c.Status == corev1.ConditionTrue {
			steps.until(stepNodeReady, c.LastTransitionTime.Time)
		}
		steps.until(stepInitialise, now)
	} else {
		steps.until(stepBoot, now)
	}
	s.Tracer.Finish(s.finished, s.about(), tracing.Span{Start: start, End: now}, steps.spans...)
	s.finished = tracing.Operation{}
	s.traces.Forget(client.ObjectKeyFromObject(s.machine))
}

// needsReplacement ends the trace of an update that is not possible in place. The replacement has its own trace.
func (s *traceStep) needsReplacement() {
	if !s.Tracer.IsEnabled() {
		return
	}
	s.Tracer.Finish(tracing.Update(s.machine.UID, updateBegan(s.machine, s.now).Unix()), s.about(),
		tracing.Span{Start: updateBegan(s.machine, s.now), End: s.Clock.Now(), Reason: v1beta1.ReasonReplacing,
			RelatedOperation: tracing.Replace(s.machine.UID, s.machine.NextLaunchAttempt())})
}

// oldInstanceGone reports the steps by which a replacement has deleted the old instance. The argument before is the
// Machine before the replacement.
func (s *traceStep) oldInstanceGone(before *v1beta1.Machine) {
	if !s.Tracer.IsEnabled() {
		return
	}
	began, now := before.CreationTimestamp.Time, s.Clock.Now()
	if c := meta.FindStatusCondition(before.Status.Conditions, v1beta1.ConditionUpToDate); c != nil {
		began = c.LastTransitionTime.Time
	}
	operation := tracing.Replace(s.machine.UID, s.machine.LaunchAttempt())
	for _, step := range removalSteps(before, began, now) {
		s.Tracer.Step(operation, s.about(), step)
	}
	s.traces.Update(s.machine, func(t *traceState) { t.replaceBegan, t.launchBegan = began, now })
}

func (s *traceStep) noteRetry() {
	if s.Tracer.IsEnabled() {
		s.traces.Update(s.machine, func(t *traceState) { t.retried = true })
	}
}

// deletionDone reports a completed deletion. If the deletion ended the creation of the Machine, the creation is
// reported too.
func (s *traceStep) deletionDone() {
	if !s.Tracer.IsEnabled() {
		return
	}
	m, now, began := s.machine, s.Clock.Now(), s.machine.DeletionTimestamp.Time
	s.reportWait(s.original)
	if known := s.traces.Get(m); known.reason != "" {
		s.Tracer.Report(s.operation, "", s.about(),
			tracing.Span{Name: "wait " + known.reason, Start: known.since, End: now, Reason: known.reason})
	}
	if s.neverRan() {
		steps := stepSequence{at: m.CreationTimestamp.Time, end: began}
		if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil &&
			c.Status == metav1.ConditionTrue {
			steps.until(stepLaunch, c.LastTransitionTime.Time)
			steps.until(stepBoot, began)
		} else {
			steps.until(stepLaunch, began)
		}
		s.Tracer.Finish(tracing.Create(m.UID), s.about(),
			tracing.Span{Start: m.CreationTimestamp.Time, End: began, Code: codeNeverRan,
				RelatedOperation: tracing.Delete(m.UID)},
			steps.spans...)
	}
	s.Tracer.Finish(tracing.Delete(m.UID), s.about(), tracing.Span{Start: began, End: now},
		removalSteps(m, began, now)...)
	s.traces.Forget(client.ObjectKeyFromObject(s.machine))
}

func (s *traceStep) neverRan() bool {
	m := s.machine
	if s.Target == nil {
		return m.Status.Instance == nil || m.Status.Instance.State != v1beta1.InstanceRunning
	}
	return m.Status.NodeRef == nil && (m.Status.Launch == nil || m.Status.Launch.OldProviderID == "") &&
		meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionNodeHealthy) == nil
}

// removalSteps returns the steps of a removal, of which the last one deletes the instance.
func removalSteps(m *v1beta1.Machine, began, ended time.Time) []tracing.Span {
	steps := stepSequence{at: began, end: ended}
	for _, step := range []struct{ name, kind string }{
		{stepDrain, v1beta1.ConditionDrained}, {stepVolumes, v1beta1.ConditionVolumesDetached},
	} {
		c := meta.FindStatusCondition(m.Status.Conditions, step.kind)
		if c != nil && c.Status == metav1.ConditionTrue {
			steps.until(step.name, c.LastTransitionTime.Time)
			steps.spans[len(steps.spans)-1].Reason = c.Reason
		}
	}
	steps.until(stepRemove, ended)
	return steps.spans
}

// stepSequence builds spans without gaps, even if their times come from different clocks.
type stepSequence struct {
	at, end time.Time
	spans   []tracing.Span
}

func (l *stepSequence) until(name string, end time.Time) {
	if end.Before(l.at) {
		end = l.at
	}
	if end.After(l.end) {
		end = l.end
	}
	l.spans = append(l.spans, tracing.Span{Name: name, Start: l.at, End: end})
	l.at = end
}

// traceState is what the process remembers of a Machine for its trace. All other data of the trace comes from the
// status of the Machine. Without traceState, the times in the trace are less exact.
type traceState struct {
	launched time.Time
	// The reason for which the Machine waits, and the start time of this wait.
	reason string
	since  time.Time
	// replaceBegan is the time at which the replacement of the instance began. The field launchBegan is the time at
	// which the old instance was gone.
	replaceBegan, launchBegan time.Time
	retried                   bool
}
