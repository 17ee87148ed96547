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

// Incidents are scenarios with the causes of incidents that users of other systems had. Package test/incidents
// describes them.
const Incidents Group = "incidents"

// incidentScenarios are the scenarios of incidents that no other group has.
func incidentScenarios() []Scenario {
	return slices.Concat(lostFleets(), troubledClouds(), troubledNodes())
}

// troubles is what a script lets go wrong with the cloud, its images and its networks in the scenarios of incidents.
// The zero value is a cloud without troubles.
type troubles struct {
	// quota is the highest number of instances, including those that are being deleted. 0 means any number.
	quota int
	// perMinute is how many calls the cloud answers in a minute. 0 means any number. answered are the times of the calls
	// in the last minute.
	perMinute int
	answered  []time.Time
	// forgets reports whether the cloud reports no instance at all.
	forgets bool
	// silent is the image whose kubelets never register. flapping is the image whose kubelets register, are never Ready,
	// and change another condition every flapEvery.
	silent, flapping string
	// madeSilent is the number of instances that were created with the image silent and that the cloud does not give up.
	// The first one was created at silentSince.
	madeSilent  int
	silentSince time.Time
	// mostSilent is how many instances with the image silent may be created. 0 means any number.
	mostSilent int
	// withdrawn is true after the script has withdrawn a request for more machines than the quota allows. inVain are the
	// machines that were refused an instance after that.
	withdrawn bool
	inVain    map[uid]bool
	// byAddress reports whether the cloud names hosts after their addresses, and assigns a free address again at once.
	byAddress bool
	// refused are the times at which each machine was refused an instance. throttled are the times at which calls were
	// refused.
	refused   map[uid][]time.Time
	throttled []time.Time
	// stripped are the machines that were removed although their instances existed.
	stripped map[uid]bool
	deletes  refusedDeletes
	// otherIDs reports whether a distribution's cloud controller sets its own provider IDs on Nodes.
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

// flapEvery is how often a flapping condition of a Node changes.
const flapEvery = 20 * time.Second

// trouble changes the troubles of the cloud.
func trouble(name string, change func(*troubles)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		change(&w.cloud.troubles)
		return nil
	}}
}

// under adds semantics to the semantics that the cloud already has.
func under(all ...Semantics) Action {
	name := fmt.Sprintf("the cloud gets the semantics %v", all)
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.past.habits = slices.Concat(w.cloud.past.habits, all)
		return nil
	}}
}

// bootAtOnce lets instances run as soon as they are created.
func bootAtOnce() Action {
	return Action{Name: "instances boot at once", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.Boot = 0
		return nil
	}}
}

// lasting lets ten minutes pass n times.
func lasting(n int) []Action { return slices.Repeat([]Action{wait(10 * time.Minute)}, n) }

// full refuses an instance beyond the quota.
func (c *Cloud) full(id uid) error {
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

// tooMany refuses a call beyond the cloud's rate limit.
func (c *Cloud) tooMany() error {
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

// hostname returns the name of the next host, which may depend on its address.
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

// of reports whether an instance has an image.
func (in *instance) of(image string) bool {
	return image != "" && strings.Contains(in.spec, fmt.Sprintf("%q:%q", "image", image))
}

// flaps returns the next change of a flapping condition of a Node if it is due, otherwise nil.
func (w *World) flaps(in *instance, node *corev1.Node) func() error {
	if !in.of(w.cloud.troubles.flapping) || w.clock.Since(in.flapped) < flapEvery {
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

// nextFlap returns when the next flapping condition changes.
func (w *World) nextFlap() (at time.Time, any bool) {
	for _, in := range w.cloud.instances {
		if in.registered && in.of(w.cloud.troubles.flapping) && in.flapped.Add(flapEvery).After(w.clock.at) &&
			(!any || in.flapped.Add(flapEvery).Before(at)) {
			at, any = in.flapped.Add(flapEvery), true
		}
	}
	return at, any
}

// joinsWithin sets the time that a deployment's machines have to join.
func joinsWithin(d time.Duration) func(*v1beta1.MachineDeployment) {
	return func(o *v1beta1.MachineDeployment) {
		o.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: d}
	}
}

// inOrder returns a script that is the same in each run.
func inOrder(parts ...[]Action) func(*rand.Rand) []Action {
	return func(*rand.Rand) []Action { return slices.Concat(parts...) }
}
