package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Incidents is the group of scenarios with the causes of incidents in other systems. Package test/incidents describes
// them.
const Incidents Group = "incidents"

// incidentScenarios returns the scenarios of incidents that are not part of other groups.
func incidentScenarios() []Scenario {
	return slices.Concat(lostFleets(), troubledClouds(), troubledNodes())
}

// troubles contains the problems of the cloud, its images and its networks in scenarios of incidents. A script sets
// them. With the zero value, the cloud has no problems.
type troubles struct {
	// quota is the maximum number of instances, including instances that are being deleted. 0 means no limit.
	quota int
	// perMinute is the maximum number of calls that the cloud answers in a minute. 0 means no limit. answered contains the
	// times of the calls in the last minute.
	perMinute int
	answered  []time.Time
	// If forgets is set, the cloud returns no instances at all.
	forgets bool
	// silent is an image whose kubelets never register. flapping is an image whose kubelets register but are never Ready,
	// and change another condition each flapEvery.
	silent, flapping string
	// madeSilent is the number of instances that were created with the image silent. Instances that fail before they boot
	// are not counted. silentSince is the time at which the first of these instances was created.
	madeSilent  int
	silentSince time.Time
	// mostSilent is the maximum number of instances with the image silent that may be created. 0 means no limit.
	mostSilent int
	// withdrawn is true after the script has withdrawn a request for more machines than the quota allows. inVain
	// contains the machines for which the cloud has refused an instance after the withdrawal.
	withdrawn bool
	inVain    map[uid]bool
	// If byAddress is set, the cloud derives host names from addresses, and assigns a free address again immediately.
	byAddress bool
	// refused contains the times at which the cloud has refused an instance, for each machine. throttled contains the
	// times at which the cloud has throttled a call.
	refused   map[uid][]time.Time
	throttled []time.Time
	// stripped contains the machines that were removed although their instances still existed.
	stripped map[uid]bool
	deletes  refusedDeletes
	// If otherIDs is set, the cloud controller of a distribution sets its own provider IDs on Nodes.
	otherIDs bool
}

func (t troubles) clone() troubles {
	t.deletes = t.deletes.clone()
	t.answered, t.throttled = slices.Clone(t.answered), slices.Clone(t.throttled)
	t.stripped, t.refused, t.inVain = maps.Clone(t.stripped), maps.Clone(t.refused), maps.Clone(t.inVain)
	for id, all := range t.refused {
		t.refused[id] = slices.Clone(all)
	}
	return t
}

// flapEvery is the interval at which a flapping condition of a Node changes.
const flapEvery = 20 * time.Second

// trouble returns an action that changes the problems of the cloud.
func trouble(name string, change func(*troubles)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		change(&w.cloud.troubles)
		return nil
	}}
}

// addSemantics returns an action that adds semantics to those that the cloud already has.
func addSemantics(all ...Semantics) Action {
	name := fmt.Sprintf("the cloud gets the semantics %v", all)
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.past.habits = slices.Concat(w.cloud.past.habits, all)
		return nil
	}}
}

// bootAtOnce returns an action after which instances run immediately after their creation.
func bootAtOnce() Action {
	return Action{Name: "instances boot at once", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.Boot = 0
		return nil
	}}
}

// lasting returns n actions that wait for ten minutes each.
func lasting(n int) []Action { return slices.Repeat([]Action{wait(10 * time.Minute)}, n) }

// checkQuota returns an error if the quota does not allow another instance.
func (c *Cloud) checkQuota(id uid) error {
	t := &c.troubles
	if t.quota == 0 || len(c.instances) < t.quota {
		return nil
	}
	if t.refused == nil {
		t.refused = map[uid][]time.Time{}
	}
	t.refused[id] = append(t.refused[id], c.now())
	if t.withdrawn {
		if t.inVain == nil {
			t.inVain = map[uid]bool{}
		}
		t.inVain[id] = true
	}
	return provider.Errorf(provider.ResourceExhausted, "%d of %d instances are used", len(c.instances), t.quota)
}

// checkRateLimit returns an error if the rate limit of the cloud does not allow another call.
func (c *Cloud) checkRateLimit() error {
	t := &c.troubles
	if t.perMinute == 0 {
		return nil
	}
	old := func(at time.Time) bool { return c.now().Sub(at) >= time.Minute }
	t.answered, t.throttled = slices.DeleteFunc(t.answered, old), slices.DeleteFunc(t.throttled, old)
	if len(t.answered) < t.perMinute {
		t.answered = append(t.answered, c.now())
		return nil
	}
	t.throttled = append(t.throttled, c.now())
	return provider.Errorf(provider.Throttled, "more than %d calls in a minute", t.perMinute)
}

// hostname returns the name of the next host. The name may depend on the address of the host.
func (c *Cloud) hostname(machine string) string {
	if !c.troubles.byAddress {
		return machine
	}
	for i := 1; ; i++ {
		name := fmt.Sprintf("ip-10-0-0-%d", i)
		if !slices.ContainsFunc(c.instances, func(in *instance) bool { return in.NodeName == name }) {
			return name
		}
	}
}

// hasImage reports whether an instance was created from the given image.
func (in *instance) hasImage(image string) bool {
	return image != "" && strings.Contains(in.spec, fmt.Sprintf("%q:%q", "image", image))
}

// flaps returns a function that changes the flapping condition of a Node, or nil if no change is due.
func (w *World) flaps(in *instance, node *corev1.Node) func() error {
	if !in.hasImage(w.cloud.troubles.flapping) || w.clock.Since(in.flapped) < flapEvery {
		return nil
	}
	return func() error {
		in.flapped = w.clock.at
		changed := node.DeepCopy()
		status := corev1.ConditionTrue
		if len(node.Status.Conditions) > 1 && node.Status.Conditions[1].Status == status {
			status = corev1.ConditionFalse
		}
		now := metav1.NewTime(w.clock.at.Truncate(time.Second))
		others := slices.Clone(node.Status.Conditions[:min(1, len(node.Status.Conditions))])
		changed.Status.Conditions = append(others, corev1.NodeCondition{
			Type: corev1.NodeNetworkUnavailable, Status: status, LastTransitionTime: now, LastHeartbeatTime: now})
		return client.IgnoreNotFound(w.kubelet().Status().Patch(context.Background(), changed, client.MergeFrom(node)))
	}
}

// nextFlap returns the time of the next change of a flapping condition.
func (w *World) nextFlap() (at time.Time, any bool) {
	for _, in := range w.cloud.instances {
		if in.registered && in.hasImage(w.cloud.troubles.flapping) && in.flapped.Add(flapEvery).After(w.clock.at) &&
			(!any || in.flapped.Add(flapEvery).Before(at)) {
			at, any = in.flapped.Add(flapEvery), true
		}
	}
	return at, any
}

// joinsWithin returns a change that sets the join timeout for the machines of a deployment.
func joinsWithin(d time.Duration) func(*v1beta1.MachineDeployment) {
	return func(o *v1beta1.MachineDeployment) {
		o.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: d}
	}
}

// inOrder returns a script with the same actions in each run.
func inOrder(parts ...[]Action) func(*rand.Rand) []Action {
	return func(*rand.Rand) []Action { return slices.Concat(parts...) }
}
