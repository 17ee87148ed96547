package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
)

// The expected values were measured with a v1.36 kubelet.

func TestBackoffs(t *testing.T) {
	for name, test := range map[string]struct {
		backoff wait.Backoff
		want    string
	}{
		"certificate":  {certificateBackoff(), "2s 4s 8s 16s 32s 32s 32s"},
		"registration": {registrationBackoff(), "200ms 400ms 800ms 1.6s 3.2s 6.4s 7s"},
	} {
		t.Run(name, func(t *testing.T) {
			test.backoff.Jitter = 0
			var got []string
			for range 7 {
				got = append(got, test.backoff.Step().String())
			}
			if all := strings.Join(got, " "); all != test.want {
				t.Errorf("got  %s\nwant %s", all, test.want)
			}
		})
	}
}

// TestLeaseOfNewNodeComesLater checks that the Lease of a new Node appears at the second renewal. A kubelet renews an
// existing Lease immediately.
func TestLeaseOfNewNodeComesLater(t *testing.T) {
	m := &machine{boot: &bootstrap{leaseDuration: 40 * time.Second}, registrationTime: dawn, nodeCreated: true}
	p := &heartbeatState{}
	m.schedule(p)
	if after := p.nextRenewal.Sub(dawn); after < 10*time.Second || after > 10400*time.Millisecond {
		t.Errorf("the first Lease comes after %s", after)
	}
	m.nodeCreated = false
	m.schedule(p)
	if after := p.nextRenewal.Sub(dawn); after != 0 {
		t.Errorf("the Lease of an existing Node is renewed after %s", after)
	}
}

func TestCloudControllerSetsCloudFields(t *testing.T) {
	m := &machine{
		spec: Spec{ProviderID: "sim://r/z/i-1", Region: "r", Zone: "z", Type: simcloud.InstanceType{Name: "small"}},
		boot: &bootstrap{labels: map[string]string{corev1.LabelTopologyZone: "mine"}},
	}
	registered := m.node(dawn)
	for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion} {
		if _, given := registered.Labels[key]; given || registered.Spec.ProviderID != "" {
			t.Errorf("the kubelet registers with the labels %v and the provider ID %q", registered.Labels,
				registered.Spec.ProviderID)
		}
	}
	node := m.withCloudFields(registered)
	if node.Spec.ProviderID != "sim://r/z/i-1" || node.Labels[corev1.LabelInstanceTypeStable] != "small" ||
		node.Labels[corev1.LabelTopologyRegion] != "r" || node.Labels[corev1.LabelTopologyZone] != "mine" {
		t.Errorf("the cloud controller sets the labels %v and the provider ID %q", node.Labels, node.Spec.ProviderID)
	}
	node.Spec.ProviderID = "other"
	if got := m.withCloudFields(node).Spec.ProviderID; got != "other" {
		t.Errorf("the existing provider ID was changed to %q", got)
	}
	p := &heartbeatState{}
	m.spec.Settings.NoCloudController = true
	if m.schedule(p); !p.cloudFieldsAt.IsZero() {
		t.Error("cloud fields are scheduled without a cloud controller")
	}
}

func TestNodeStatusListsImages(t *testing.T) {
	m := &machine{boot: &bootstrap{}}
	if !m.pull("b") || !m.pull("a") || m.pull("b") {
		t.Error("pull reports a new image as old, or an old image as new")
	}
	status := m.node(dawn).Status
	if got := fmt.Sprint(status.Images); got != "[{[a] 10485760} {[b] 10485760}]" {
		t.Errorf("the images are %s", got)
	}
	if len(status.RuntimeHandlers) != 2 || !*status.Features.SupplementalGroupsPolicy {
		t.Errorf("handlers %+v, features %+v", status.RuntimeHandlers, status.Features)
	}
	for i := range 2 * maxImages {
		m.pull(fmt.Sprint("image-", i))
	}
	if got := len(m.node(dawn).Status.Images); got != maxImages {
		t.Errorf("the Node lists %d images", got)
	}
}

func machineWithEvents(s simcloud.HostSettings) *machine {
	return &machine{spec: Spec{Hostname: "h", Settings: s}, clock: clock.RealClock{},
		events: make(chan *corev1.Event, maxEvents)}
}

func (m *machine) drainEvents() string {
	var all []string
	for len(m.events) > 0 {
		e := <-m.events
		all = append(all, strings.TrimSpace(e.InvolvedObject.Name+" "+e.Reason))
	}
	return strings.Join(all, ", ")
}

func TestKubeletEvents(t *testing.T) {
	m := machineWithEvents(settings)
	from := boundPod(corev1.RestartPolicyAlways, "crash-after", "5s")
	p, _ := newPod(from, dawn, settings)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, ""}, {time.Second, "p Pulling, p Pulled, p Created, p Started"}, {6 * time.Second, ""},
		{7 * time.Second, "p Pulled, p Created, p Started"}, {21500 * time.Millisecond, "p BackOff"},
		{22 * time.Second, "p Pulled, p Created, p Started"},
	} {
		p.advance(dawn.Add(step.after), settings)
		m.recordPodEvents(p)
		if got := m.drainEvents(); got != step.want {
			t.Errorf("after %s: %q, want %q", step.after, got, step.want)
		}
	}
	_ = p.update(deletedPod(from, 23*time.Second, time.Minute), dawn.Add(23*time.Second), settings)
	m.recordPodEvents(p)
	event := <-m.events
	if event.Reason != "Killing" || event.Message != "Stopping container c" || event.Namespace != "n" ||
		event.InvolvedObject.FieldPath != "spec.containers{c}" || event.InvolvedObject.UID != "u" ||
		event.Source.Component != "kubelet" || event.Source.Host != "h" {
		t.Errorf("got %+v", event)
	}
	m.registrationEvents()
	want := "h NodeHasSufficientMemory, h NodeHasNoDiskPressure, h NodeHasSufficientPID, h NodeAllocatableEnforced"
	if got := m.drainEvents(); got != want {
		t.Errorf("registration events: %q", got)
	}
}

func TestFullEventQueueDoesNotBlock(t *testing.T) {
	m := machineWithEvents(simcloud.HostSettings{})
	names := map[string]bool{}
	for range 2 * maxEvents {
		m.nodeEvent(corev1.EventTypeNormal, "Starting", "")
	}
	for range maxEvents {
		e := <-m.events
		if names[e.Name] = true; e.Namespace != metav1.NamespaceDefault {
			t.Fatalf("the namespace is %q", e.Namespace)
		}
	}
	if len(names) != maxEvents || len(m.events) != 0 {
		t.Errorf("got %d distinct names and %d more events", len(names), len(m.events))
	}
	withoutEvents := machineWithEvents(simcloud.HostSettings{OmitEvents: true})
	if withoutEvents.registrationEvents(); len(withoutEvents.events) != 0 {
		t.Error("events are queued despite OmitEvents")
	}
}

// TestPodConditionTransitionTimes checks that the report of the sandbox does not change the transition time of Ready.
func TestPodConditionTransitionTimes(t *testing.T) {
	p, _ := newPod(boundPod(corev1.RestartPolicyAlways), dawn, settings)
	at := func(kind corev1.PodConditionType) string {
		c := conditionOf(t, &corev1.Pod{Status: *p.status("10.0.0.1")}, kind)
		return fmt.Sprintf("%s %s", c.Status, c.LastTransitionTime.Sub(dawn))
	}
	for _, step := range []struct {
		after          time.Duration
		sandbox, ready string
	}{
		{0, "False 0s", "False 0s"}, {500 * time.Millisecond, "True 500ms", "False 0s"},
		{time.Second, "True 500ms", "True 1s"},
	} {
		p.advance(dawn.Add(step.after), settings)
		if sandbox, ready := at(corev1.PodReadyToStartContainers), at(corev1.PodReady); sandbox != step.sandbox ||
			ready != step.ready {
			t.Errorf("after %s: sandbox %s, ready %s", step.after, sandbox, ready)
		}
	}
}
