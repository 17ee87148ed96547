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

// firstVolumesOutcome checks a node's volumes while the caller waits. If volumes are attached, a worker then checks in
// the background whether other nodes may need them.
func (c *Controller) firstVolumesOutcome(ctx context.Context, request VolumesRequest) Outcome {
	ctx, cancel := context.WithTimeout(ctx, inlineTimeout)
	defer cancel()
	began := c.options.Clock.Now() // See passVolumes.
	list, wait, err := c.attachments.attachedTo(ctx, request.Node, request.DrainTime)
	if err != nil {
		return Outcome{Reason: v1beta1.ReasonDrainError, Message: shorten(err.Error())}
	}
	if wait > 0 {
		return Outcome{Reason: v1beta1.ReasonWaitingForVolumeDetach,
			Message: fmt.Sprintf("Checking which volumes are attached to node %s.", request.Node)}
	}
	return volumesOutcome(request, relevantVolumes(list, request.ReportedVolumes, preservedVolumes{}), began)
}

// passVolumes checks the volumes of a node and returns the time until the next pass. It returns 0 if the wait is over.
// If the process is suspended during a pass, the time of the suspension does not count for the timeout.
func (c *Controller) passVolumes(ctx context.Context, r *record, request VolumesRequest) (time.Duration, error) {
	began := c.options.Clock.Now() // The result is as old as the start of the read.
	pass, left, since := &r.volumesPass, request.timeLeft(began), request.DrainTime
	if pass.since.After(since) {
		since = pass.since
	}
	list, wait, err := c.attachments.attachedTo(ctx, request.Node, since)
	if wait > 0 {
		if left > 0 {
			return min(wait, left), nil
		}
		list = c.attachments.latest(request.Node) // This list is too old, but the timeout has passed.
	}
	var attached []string
	if err == nil {
		attached, err = c.attachedVolumes(ctx, r, request, list)
	}
	if err != nil && answered(err) && left <= 0 {
		// The API server refuses the request, so a longer wait would not help.
		attached, err = []string{shorten(err.Error())}, nil
	}
	if err != nil {
		return 0, err
	}
	o := volumesOutcome(request, attached, began)
	if o.IsDone {
		c.records.setOutcome(&r.detached, o)
		return 0, nil
	}
	pass.report.update(o.Reason, o.Message, fmt.Sprint(attached), c.options.Clock.Now())
	o.Reason, o.Message = pass.report.reason, pass.report.message
	c.records.setOutcome(&r.detached, o)
	pass.since, pass.recheck = c.options.Clock.Now(), min(max(2*pass.recheck, minRecheck), maxRecheck)
	return min(pass.recheck, left), nil
}

func (c *Controller) attachedVolumes(ctx context.Context, r *record, request VolumesRequest,
	list []Attachment) ([]string, error) {
	node, err := c.node(ctx, request.Subject)
	if err != nil {
		return nil, err
	}
	var report []corev1.AttachedVolume
	if node != nil {
		report = node.Status.VolumesAttached
	}
	if len(relevantVolumes(list, report, preservedVolumes{})) == 0 {
		return nil, nil
	}
	preserved, err := c.preservedVolumes(ctx, r, request.Subject)
	if err != nil {
		return nil, err
	}
	return relevantVolumes(list, report, preserved), nil
}

func (c *Controller) preservedVolumes(ctx context.Context, r *record, subject Subject) (preservedVolumes, error) {
	preserved := preservedVolumes{map[string]bool{}, map[corev1.UniqueVolumeName]bool{}}
	in, err := c.observe(ctx, r, subject)
	if err != nil {
		return preserved, err
	}
	for _, name := range preservedClaims(Plan(in)) {
		var claim corev1.PersistentVolumeClaim
		if err := c.options.Target.Get(ctx, name, &claim); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return preserved, fmt.Errorf("get PersistentVolumeClaim %s: %w", name, err)
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		preserved.names[claim.Spec.VolumeName] = true
		var volume corev1.PersistentVolume
		if err := c.options.Target.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName},
			&volume); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return preserved, fmt.Errorf("get PersistentVolume %q: %w", claim.Spec.VolumeName, err)
		}
		preserved.reported[reportedName(volume.Spec.CSI)] = true
	}
	return preserved, nil
}

func preservedClaims(d Decision) []types.NamespacedName {
	var claims []types.NamespacedName
	for _, s := range d.Steps {
		if s.Action == ActionSkip {
			claims = append(claims, claimsOf(s.pod)...)
		}
	}
	return claims
}
