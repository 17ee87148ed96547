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

// Incidents is the group of scenarios with the causes of incidents in other systems (see package test/incidents).
const Incidents Group = "incidents"

func incidentScenarios() []Scenario {
	return slices.Concat(lostFleets(), troubledClouds(), troubledNodes())
}

// cloudProblems contains the problems of the cloud, its images and its networks. The actions of a script set these
// fields. The zero value describes a cloud without problems.
type cloudProblems struct {
	// quota limits the number of instances, including those that are being deleted. 0 means no limit.
	quota int
	// perMinute limits the calls that the cloud answers in a minute. 0 means no limit. answered contains the times of
	// the calls in the last minute.
	perMinute int
	answered  []time.Time
	// If forgets is true, the cloud does not return any instances.
	forgets bool
	// silentImage is the name of an image whose kubelets never register. flappingImage is the name of an image whose
	// kubelets register but never become Ready. A kubelet with the flapping image also changes another condition at
	// intervals of flapEvery.
	silentImage, flappingImage string
	// madeSilent is the number of created instances whose kubelets never register. Instances that fail before they boot
	// do not count. silentSince is the time when the first such instance was created.
	madeSilent  int
	silentSince time.Time
	// mostSilent is the highest allowed value of madeSilent. 0 means no limit.
	mostSilent int
	// isWithdrawn is true after the script has lowered the replicas from a value that the quota does not allow.
	// inVain contains the machines for which the cloud has refused an instance after that.
	isWithdrawn bool
	inVain      map[uid]bool
	// networkDown is true while the networks of Nodes do not work, although their kubelets report Ready.
	networkDown bool
	// byAddress makes the cloud derive host names from addresses, and reuse a free address immediately.
	byAddress bool
	refused   map[uid][]time.Time
	throttled []time.Time
	// strippedMachines contains the machines that were removed while their instances still existed.
	strippedMachines map[uid]bool
	deletes          refusedDeletes
	// nextFails is how the next new instance fails, or 0.
	nextFails nextFailure
	// replaced is the machine whose replacement is to fail.
	replaced uid
	// otherIDs makes a distribution's cloud controller set its own provider IDs on Nodes.
	otherIDs bool
}

func (t cloudProblems) clone() cloudProblems {
	t.deletes = t.deletes.clone()
	t.answered, t.throttled = slices.Clone(t.answered), slices.Clone(t.throttled)
	t.strippedMachines, t.refused, t.inVain = maps.Clone(t.strippedMachines), maps.Clone(t.refused), maps.Clone(t.inVain)
	for id, all := range t.refused {
		t.refused[id] = slices.Clone(all)
	}
	return t
}

const flapEvery = 20 * time.Second

func trouble(name string, change func(*cloudProblems)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		change(&w.cloud.troubles)
		return nil
	}}
}

func addSemantics(all ...Semantics) Action {
	name := fmt.Sprintf("the cloud now behaves with the semantics %v", all)
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.past.habits = slices.Concat(w.cloud.past.habits, all)
		return nil
	}}
}

func bootAtOnce() Action {
	return Action{Name: "instances boot at once", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.Boot = 0
		return nil
	}}
}

func lasting(n int) []Action { return slices.Repeat([]Action{wait(10 * time.Minute)}, n) }

func (c *Cloud) checkQuota(id uid) error {
	t := &c.troubles
	if t.quota == 0 || len(c.instances) < t.quota {
		return nil
	}
	if t.refused == nil {
		t.refused = map[uid][]time.Time{}
	}
	t.refused[id] = append(t.refused[id], c.now())
	if t.isWithdrawn {
		if t.inVain == nil {
			t.inVain = map[uid]bool{}
		}
		t.inVain[id] = true
	}
	return provider.Errorf(provider.ResourceExhausted, "%d of %d instances are used", len(c.instances), t.quota)
}

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

func (in *instance) hasImage(image string) bool {
	return image != "" && strings.Contains(in.spec, fmt.Sprintf("%q:%q", "image", image))
}

func (w *World) flaps(in *instance, node *corev1.Node) func() error {
	if !in.hasImage(w.cloud.troubles.flappingImage) || w.clock.Since(in.flapped) < flapEvery {
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

func (w *World) nextFlap() (at time.Time, any bool) {
	for _, in := range w.cloud.instances {
		if in.registered && in.hasImage(w.cloud.troubles.flappingImage) && in.flapped.Add(flapEvery).After(w.clock.at) &&
			(!any || in.flapped.Add(flapEvery).Before(at)) {
			at, any = in.flapped.Add(flapEvery), true
		}
	}
	return at, any
}

func joinsWithin(d time.Duration) func(*v1beta1.MachineDeployment) {
	return func(o *v1beta1.MachineDeployment) {
		o.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: d}
	}
}

func inOrder(parts ...[]Action) func(*rand.Rand) []Action {
	return func(*rand.Rand) []Action { return slices.Concat(parts...) }
}
