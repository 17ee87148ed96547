package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// checkVolumesInline checks the volumes of a node on behalf of a caller that waits. The workers check more closely, and
// only if there seems to be something to wait for.
func (c *Controller) checkVolumesInline(ctx context.Context, r *record, request VolumesRequest) {
	began := c.options.Clock.Now() // See passVolumes.
	list, wait, err := c.attachments.on(ctx, request.Node, request.Drained)
	if err != nil {
		c.reportVolumesError(r, err)
		return
	}
	decision := PlanVolumes(VolumeInput{
		Attachments: list,
		Reported:    request.Reported,
		Now:         began,
		Drained:     request.Drained,
		Timeout:     request.Timeout,
	})
	if wait > 0 {
		decision.Done, decision.TimedOut = false, false
	}
	c.reportVolumes(r, request, decision)
}

// passVolumes checks the volumes of a node and returns the time of the next pass. It returns 0 if the wait is over.
func (c *Controller) passVolumes(ctx context.Context, r *record, request VolumesRequest) (time.Duration, error) {
	began := c.options.Clock.Now() // Reading takes time, but the result is only as fresh as this.
	since := request.Drained
	if again := r.volumesPass.since; again.After(since) {
		since = again
	}
	list, wait, err := c.attachments.on(ctx, request.Node, since)
	if err == nil && wait > 0 {
		if left := request.left(began); left > 0 {
			return min(wait, left), nil
		}
		// The list is too old, but the timeout has passed.
		list = c.attachments.last(request.Node)
	}
	var decision VolumeDecision
	if err == nil {
		decision, err = c.checkVolumes(ctx, r, request, list, began)
	}
	if err != nil && answered(err) && request.left(began) <= 0 {
		// The API server denies the read, so waiting longer is useless.
		decision, err = VolumeDecision{Done: true, TimedOut: true, Waiting: []string{shorten(err.Error())}}, nil
	}
	if err != nil {
		c.reportVolumesError(r, err)
		return 0, err
	}
	c.reportVolumes(r, request, decision)
	return decision.Next, nil
}

// checkVolumes reads what the decision needs in addition to the attachments, and decides with the time at which the
// check began. Time during which the process was suspended does not count as waiting.
func (c *Controller) checkVolumes(
	ctx context.Context, r *record, request VolumesRequest, list []Attachment, began time.Time,
) (VolumeDecision, error) {
	reported, err := c.reportedBy(ctx, request)
	if err != nil {
		return VolumeDecision{}, err
	}
	in := VolumeInput{
		Attachments:  list,
		Reported:     reported,
		Now:          began,
		Drained:      request.Drained,
		Timeout:      request.Timeout,
		RecheckAfter: r.volumesPass.recheck,
	}
	decision := PlanVolumes(in)
	if !decision.Done {
		if in.Preserved, in.PreservedReported, err = c.preservedVolumes(ctx, r, request.Node); err != nil {
			return VolumeDecision{}, err
		}
		decision = PlanVolumes(in)
	}
	r.volumesPass.recheck, r.volumesPass.since = decision.RecheckAfter, c.options.Clock.Now()
	return decision, nil
}

// reportedBy returns the volumes that the Node reports as attached.
func (c *Controller) reportedBy(ctx context.Context, request VolumesRequest) ([]corev1.AttachedVolume, error) {
	var node corev1.Node
	err := c.options.Target.Get(ctx, types.NamespacedName{Name: request.Node}, &node)
	if apierrors.IsNotFound(err) || err == nil && request.NodeUID != "" && node.UID != request.NodeUID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %q: %w", request.Node, err)
	}
	return node.Status.VolumesAttached, nil
}

// preservedVolumes returns the PersistentVolumes of the pods that a drain leaves on the node, and the names under which
// the Node reports them.
func (c *Controller) preservedVolumes(
	ctx context.Context, r *record, node string,
) (preserved map[string]bool, reported map[corev1.UniqueVolumeName]bool, err error) {
	pods, err := c.podsOn(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	orphaned, err := c.daemonSets.orphaned(ctx, pods)
	if err != nil {
		return nil, nil, err
	}
	now, tracker := c.options.Clock.Now(), &r.drainPass.tracker
	tracker.observe(pods, now)
	claims := preservedClaims(pods, Plan(Input{Pods: pods, Now: now, Orphaned: orphaned,
		Successors: tracker.successors}))
	preserved, reported = map[string]bool{}, map[corev1.UniqueVolumeName]bool{}
	for _, name := range claims {
		var claim corev1.PersistentVolumeClaim
		if err := c.options.Target.Get(ctx, name, &claim); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("get PersistentVolumeClaim %s: %w", name, err)
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		preserved[claim.Spec.VolumeName] = true
		var volume corev1.PersistentVolume
		if err := c.options.Target.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName},
			&volume); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("get PersistentVolume %q: %w", claim.Spec.VolumeName, err)
		}
		reported[reportedName(volume.Spec.CSI)] = true
	}
	return preserved, reported, nil
}

// preservedClaims returns the PersistentVolumeClaims of the pods that a plan skips.
func preservedClaims(pods []corev1.Pod, d Decision) []types.NamespacedName {
	skipped := map[types.UID]bool{}
	for _, s := range d.Steps {
		skipped[s.UID] = s.Action == Skip
	}
	var claims []types.NamespacedName
	for i := range pods {
		pod := &pods[i]
		if !skipped[pod.UID] {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			switch {
			case volume.PersistentVolumeClaim != nil:
				claims = append(claims, types.NamespacedName{Namespace: pod.Namespace,
					Name: volume.PersistentVolumeClaim.ClaimName})
			case volume.Ephemeral != nil:
				claims = append(claims, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + volume.Name})
			}
		}
	}
	return claims
}

// reportVolumes records the progress of the wait.
func (c *Controller) reportVolumes(r *record, request VolumesRequest, d VolumeDecision) {
	o := Outcome{Done: d.Done}
	switch {
	case d.TimedOut:
		o.Reason = v1beta1.ReasonVolumeDetachTimeout
		o.Message = fmt.Sprintf("Timed out after %s while waiting for volumes to be detached: %s.", request.Timeout,
			joinVolumes(d.Waiting))
	case d.Done:
		o.Reason, o.Message = v1beta1.ReasonVolumesDetached, "No volume that another node may need is attached."
	default:
		report := &r.volumesPass.report
		report.offer(v1beta1.ReasonWaitingForVolumeDetach, volumesMessage(request, d.Waiting), fmt.Sprint(d.Waiting),
			c.options.Clock.Now())
		o.Reason, o.Message, o.Attached = report.reason, report.message, d.Waiting
	}
	c.drainStates.setVolumesOutcome(r, o)
}

func volumesMessage(request VolumesRequest, waiting []string) string {
	if len(waiting) == 0 {
		return fmt.Sprintf("Checking which volumes are attached to node %s.", request.Node)
	}
	return fmt.Sprintf("Volumes still attached to node %s: %s.", request.Node, joinVolumes(waiting))
}

func joinVolumes(volumes []string) string {
	return joinNames(volumes, func(name string) string { return name })
}

// reportVolumesError records that the attached volumes cannot be read at the moment.
func (c *Controller) reportVolumesError(r *record, err error) {
	report := &r.volumesPass.report
	report.offer(v1beta1.ReasonDrainError, shorten(err.Error()), "", c.options.Clock.Now())
	before := c.drainStates.volumesOutcomeOf(r)
	c.drainStates.setVolumesOutcome(r, Outcome{Reason: report.reason, Message: report.message, Attached: before.Attached})
}
