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

// Incidents is what has happened to the users of other systems, which package test/incidents describes: the same cause,
// in this world.
const Incidents Group = "incidents"

// incidentScenarios are those that other groups do not have.
func incidentScenarios() []Scenario {
	return slices.Concat(lostFleets(), troubledClouds(), troubledNodes())
}

// troubles is what is wrong with a cloud, its images and its networks in the scenarios of incidents, while a script
// wants it. The zero value is a cloud without any.
type troubles struct {
	// quota is how many instances there may be, those that are being removed included; 0 is any number.
	quota int
	// perMinute is how many calls in a minute the cloud answers; 0 is any number. answered are those of the last minute.
	perMinute int
	answered  []time.Time
	// forgets is true while the cloud says that there is no instance at all.
	forgets bool
	// silent is the image whose kubelets never register, flapping the one whose kubelets register, are never Ready and
	// report another condition every flapEvery.
	silent, flapping string
	// madeSilent is how many instances were made of the image silent that the cloud does not give up by itself, the first
	// of them at silentSince.
	madeSilent  int
	silentSince time.Time
	// mostSilent is how many instances of the image silent may be created; 0 is any number.
	mostSilent int
	// withdrawn is true after the script took back a request for more machines than the quota allows. inVain are the
	// machines that were refused an instance since.
	withdrawn bool
	inVain    map[uid]bool
	// byAddress is true where the cloud names hosts after their addresses, and gives an address away again at once.
	byAddress bool
	// refused is when each machine was refused an instance, throttled when a call was.
	refused   map[uid][]time.Time
	throttled []time.Time
	// stripped are the machines that somebody removed although their instances were there.
	stripped map[uid]bool
	deletes  refusedDeletes
	// otherIDs is true where the cloud controller is a distribution's, which gives Nodes IDs of its own.
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

// flapEvery is how often a condition of a Node changes that flaps.
const flapEvery = 20 * time.Second

// trouble changes what is wrong with the cloud.
func trouble(name string, change func(*troubles)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		change(&w.cloud.troubles)
		return nil
	}}
}

// under gives the cloud semantics, beside those that the run has.
func under(all ...Semantics) Action {
	name := fmt.Sprintf("the cloud becomes %v", all)
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.past.habits = slices.Concat(w.cloud.past.habits, all)
		return nil
	}}
}

// bootAtOnce has instances run as soon as they are made.
func bootAtOnce() Action {
	return Action{Name: "instances boot at once", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.Boot = 0
		return nil
	}}
}

// lasting lets n times ten minutes pass in which people watch.
func lasting(n int) []Action { return slices.Repeat([]Action{wait(10 * time.Minute)}, n) }

// full refuses an instance more than the quota has.
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

// tooMany refuses a call more than the cloud answers in a minute.
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

// hostname is the name of the next host of a cloud that names them after their addresses.
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

// of reports whether an instance is of an image.
func (in *instance) of(image string) bool {
	return image != "" && strings.Contains(in.spec, fmt.Sprintf("%q:%q", "image", image))
}

// flaps returns the change of a condition of a Node that flaps, if it is due; nil if it does not.
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

// nextFlap returns when the next condition changes.
func (w *World) nextFlap() (at time.Time, any bool) {
	for _, in := range w.cloud.instances {
		if in.registered && in.of(w.cloud.troubles.flapping) && in.flapped.Add(flapEvery).After(w.clock.at) &&
			(!any || in.flapped.Add(flapEvery).Before(at)) {
			at, any = in.flapped.Add(flapEvery), true
		}
	}
	return at, any
}

// joinsWithin gives a deployment's machines a time to join.
func joinsWithin(d time.Duration) func(*v1beta1.MachineDeployment) {
	return func(o *v1beta1.MachineDeployment) {
		o.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: d}
	}
}

// inOrder is a script that is the same in each run.
func inOrder(parts ...[]Action) func(*rand.Rand) []Action {
	return func(*rand.Rand) []Action { return slices.Concat(parts...) }
}
