package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// UnusedVolume is a PersistentVolume that is attached to the node although no pod on the node uses it.
type UnusedVolume struct {
	Name string
	// Since is the time of the first check that found the volume unused.
	Since time.Time
}

// claimsOf returns the names of the PersistentVolumeClaims of a pod.
func claimsOf(pod *corev1.Pod) (claims []types.NamespacedName) {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			claims = append(claims, types.NamespacedName{Namespace: pod.Namespace,
				Name: volume.PersistentVolumeClaim.ClaimName})
		case volume.Ephemeral != nil:
			claims = append(claims, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + volume.Name})
		}
	}
	return claims
}

func oneVolumePodAtATime(policy *v1beta1.MachineDrain) bool {
	return policy != nil && policy.PodsWithVolumes == v1beta1.VolumePodsOneAtATime
}

// blockVolumePods blocks the evictions of pods with volumes while another pod with volumes is terminating, or while
// the volumes of an earlier pod are attached to the node. Otherwise, only the first eviction is not blocked. Near the
// deadline, the pods are deleted together.
func (p *planner) blockVolumePods(steps []Step) {
	if !oneVolumePodAtATime(p.Policy) {
		return
	}
	busy, isSlow := p.busyVolumes(steps)
	for i := range steps {
		s := &steps[i]
		if s.Action != ActionEvict || len(claimsOf(s.pod)) == 0 {
			continue
		}
		if busy == "" {
			busy = fmt.Sprintf("pod %s is evicted first", s.Pod)
			continue
		}
		s.Action, s.Grace, s.awaitsVolumes, s.IsSlow = ActionBlock, 0, true, isSlow
		s.Explanation = "pods with volumes are evicted one at a time: " + busy
		isSlow = false // One pod is enough to report the volume.
	}
}

// busyVolumes returns why no pod with volumes may be evicted now, or an empty string.
func (p *planner) busyVolumes(steps []Step) (why string, isSlow bool) {
	for _, s := range steps {
		try := p.Attempts[s.UID]
		switch {
		case !s.pending() || len(claimsOf(s.pod)) == 0:
		case isTerminating(s.pod):
			return fmt.Sprintf("pod %s is terminating", s.Pod), false
		case try.UnansweredAction == ActionEvict && p.Now.Before(try.NotBefore):
			return fmt.Sprintf("the API server did not answer to the eviction of pod %s", s.Pod), false
		}
	}
	if p.VolumesDenied != "" {
		return "the attached volumes cannot be read: " + p.VolumesDenied, true
	}
	if p.VolumesUnknown {
		return "the attached volumes are not known yet", false
	}
	for _, v := range p.UnusedVolumes {
		if p.Now.Before(v.Since.Add(p.VolumeDetachTimeout)) {
			return "volume " + v.Name + " of an earlier pod is still attached", p.Now.Sub(v.Since) >= slowTermination
		}
	}
	return "", false
}

// observeVolumes adds the unused volumes of the node to the input, if pods with volumes are evicted one at a time.
func (c *Controller) observeVolumes(ctx context.Context, r *record, request Request, in *Input) error {
	in.VolumeDetachTimeout = request.VolumeDetachTimeout
	pass := &r.drainPass
	if !oneVolumePodAtATime(in.Policy) || !slices.ContainsFunc(in.Pods, func(pod corev1.Pod) bool {
		return !isFinished(&pod) && !isTerminating(&pod) && len(claimsOf(&pod)) > 0
	}) {
		pass.unusedSince = nil
		return nil
	}
	list, wait, err := c.attachments.attachedTo(ctx, request.Node, in.Now)
	if err != nil {
		return err
	}
	if wait > 0 {
		in.VolumesUnknown = true
		return nil
	}
	used := map[string]bool{"": true} // The name of an inline volume is empty. Inline volumes do not matter.
	if len(list) > 0 {
		if err := c.addUsedVolumes(ctx, pass, in.Pods, used); err != nil {
			return err
		}
	}
	since := map[string]time.Time{}
	for _, a := range list {
		if used[a.PersistentVolume] {
			continue
		}
		at, known := pass.unusedSince[a.PersistentVolume]
		if !known {
			at = in.Now
		}
		since[a.PersistentVolume] = at
		in.UnusedVolumes = append(in.UnusedVolumes, UnusedVolume{a.PersistentVolume, at})
	}
	pass.unusedSince = since
	slices.SortFunc(in.UnusedVolumes, func(a, b UnusedVolume) int { return a.Since.Compare(b.Since) })
	return nil
}

// addUsedVolumes adds the names of the PersistentVolumes that the pods use. The PersistentVolume of a bound claim never
// changes, so each claim is read only once per drain.
func (c *Controller) addUsedVolumes(ctx context.Context, pass *drainPass, pods []corev1.Pod,
	used map[string]bool) error {
	for i := range pods {
		if isFinished(&pods[i]) {
			continue
		}
		for _, name := range claimsOf(&pods[i]) {
			volume, known := pass.volumeOf[name]
			if !known {
				var claim corev1.PersistentVolumeClaim
				if err := c.options.Target.Get(ctx, name, &claim); apierrors.IsNotFound(err) {
					continue
				} else if err != nil {
					return fmt.Errorf("get PersistentVolumeClaim %s: %w", name, err)
				}
				if volume = claim.Spec.VolumeName; volume == "" {
					continue
				}
				if pass.volumeOf == nil {
					pass.volumeOf = map[types.NamespacedName]string{}
				}
				pass.volumeOf[name] = volume
			}
			used[volume] = true
		}
	}
	return nil
}
