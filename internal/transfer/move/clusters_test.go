package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/transfer/backup"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

const (
	sourceID      = "the-source"
	destinationID = "the-destination"
)

// errKilled is the error of each request after the command was killed.
var errKilled = errors.New("killed")

// clusters holds two control clusters between which a test moves a fleet. Before each read request of the move, the
// test simulates the managers and providers of both clusters.
type clusters struct {
	testing.TB
	source, destination client.WithWatch
	namespace           string
	// writes is the number of successful writes of the move. The move is killed directly after write number killAt.
	writes, killAt int
	killed         bool
	// If processesIdle is set, the processes do nothing. onList is called at each list request of the move.
	processesIdle bool
	onList        func()
	// machineCount is the number of machines. The field exempt is the name of a machine whose pause the test ends.
	machineCount int
	exempt       string
	until        time.Time
	reports      []string
}

func newClusters(t testing.TB) *clusters {
	t.Helper()
	return &clusters{TB: t, source: inmemory.Client(), destination: inmemory.NewCluster(), namespace: env.Namespace(t),
		machineCount: 3,
		until:        time.Now().Add(time.Hour)}
}

func (c *clusters) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// fleet creates a deployment with a set and two machines, and a third machine without an owner.
func (c *clusters) fleet() {
	c.Helper()
	object := metav1.ObjectMeta{Namespace: c.namespace}
	named := func(name string) metav1.ObjectMeta {
		o := *object.DeepCopy()
		o.Name = name
		return o
	}
	secret := &corev1.Secret{ObjectMeta: named("credentials"), StringData: map[string]string{"token": "t"}}
	secret.Labels = map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}
	class := &v1beta1.MachineClass{ObjectMeta: named("small"), Spec: v1beta1.MachineClassSpec{Provider: "sim",
		CredentialsRef: &v1beta1.LocalRef{Name: "credentials"},
		ProviderSpec:   &runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Size"}`)}}}
	pool := map[string]string{"pool": "web"}
	template := v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: pool},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}
	deployment := &v1beta1.MachineDeployment{ObjectMeta: named("web"), Spec: v1beta1.MachineDeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: metav1.LabelSelector{MatchLabels: pool}, Template: template}}
	set := &v1beta1.MachineSet{ObjectMeta: named("web-1"), Spec: v1beta1.MachineSetSpec{Replicas: ptr.To[int32](2),
		Selector: metav1.LabelSelector{MatchLabels: pool}, Template: template}}
	check := &v1beta1.MachineHealthCheck{ObjectMeta: named("web"), Spec: v1beta1.MachineHealthCheckSpec{
		Selector: metav1.LabelSelector{MatchLabels: pool}}}
	budget := &v1beta1.MachineDisruptionBudget{ObjectMeta: named("web"), Spec: v1beta1.MachineDisruptionBudgetSpec{
		Selector: metav1.LabelSelector{MatchLabels: pool}, MaxDisrupted: intstr.FromInt32(1)}}
	for _, o := range []client.Object{secret, class, deployment, check, budget} {
		c.must(c.source.Create(c.Context(), o))
	}
	set.OwnerReferences = owned("MachineDeployment", deployment)
	c.must(c.source.Create(c.Context(), set))
	for _, name := range []string{"web-1-a", "web-1-b"} {
		c.machine(name, pool, owned("MachineSet", set))
	}
	c.machine("alone", nil, nil)
}

func owned(kind string, o client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: kind, Name: o.GetName(),
		UID: o.GetUID(), Controller: ptr.To(true)}}
}

func (c *clusters) machine(name string, labels map[string]string, owners []metav1.OwnerReference) {
	c.Helper()
	m := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: labels, OwnerReferences: owners,
			Finalizers: []string{v1beta1.MachineFinalizer}},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}, ProviderID: "sim://a/b/" + name},
	}
	c.must(c.source.Create(c.Context(), m))
	c.launch(c.source, m)
}

func (c *clusters) launch(cluster client.Client, m *v1beta1.Machine) {
	m.Status.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: "sim"}
	if m.Name != "alone" { // The machine named alone has no Node.
		m.Status.NodeRef = &v1beta1.NodeRef{Name: m.Name}
	}
	c.must(cluster.Status().Update(c.Context(), m))
}

// move runs a move of the given deployments. Without deployments, it moves the whole namespace.
func (c *clusters) move(deployments ...string) error {
	c.Helper()
	c.reports, c.writes, c.killed = nil, 0, false
	ctx, cancel := context.WithTimeout(c.Context(), env.Patience)
	defer cancel()
	m := c.prepared(deployments...)
	return m.Run(ctx)
}

func (c *clusters) prepared(deployments ...string) *Move {
	return &Move{
		Source: c.intercepted(c.source), Destination: c.intercepted(c.destination), SourceID: sourceID,
		DestinationID: destinationID,
		Namespace:     c.namespace, Deployments: deployments, PermissionEnd: c.until, Interval: time.Millisecond,
		Report: func(sentence string) { c.reports = append(c.reports, sentence) },
	}
}

// intercepted wraps a client for use by the move. Before each read request, the wrapper simulates the managers and
// providers of both clusters. After each write request, the wrapper checks the invariants.
func (c *clusters) intercepted(cluster client.WithWatch) client.Client {
	write := func(do func() error) error {
		if c.killed {
			return errKilled
		}
		if err := do(); err != nil {
			return err
		}
		c.writes++
		c.checkInvariants()
		if c.killed = c.writes == c.killAt; c.killed {
			return errKilled
		}
		return nil
	}
	return interceptor.NewClient(cluster, interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if c.killed {
				return errKilled
			}
			if l.GetObjectKind().GroupVersionKind().Kind == "MachineList" {
				c.processes()
			}
			if c.onList != nil {
				c.onList()
			}
			return w.List(ctx, l, o...)
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return write(func() error { return w.Create(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			return write(func() error { return w.Patch(ctx, o, p, options...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write(func() error { return w.Delete(ctx, o, options...) })
		},
	})
}

// A call of processes simulates one pass of the managers and providers of both clusters.
func (c *clusters) processes() {
	c.Helper()
	if c.processesIdle {
		return
	}
	for _, m := range c.machines(c.source) {
		_, paused := m.Annotations[v1beta1.AnnotationPaused]
		switch {
		case m.DeletionTimestamp.IsZero() && !slices.Contains(m.Finalizers, v1beta1.MachineFinalizer):
			c.Errorf("the move removed the finalizer of machine %s before its deletion, so the source's provider puts it "+
				"back", m.Name)
		case meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPaused) != paused:
			setCondition(&m.Status.Conditions, v1beta1.ConditionPaused, paused)
			c.must(c.source.Status().Update(c.Context(), &m))
		case !paused && !m.DeletionTimestamp.IsZero():
			m.Finalizers = nil // The provider has deleted the instance.
			c.must(c.source.Update(c.Context(), &m))
		}
	}
	sets, deployments := &v1beta1.MachineSetList{}, &v1beta1.MachineDeploymentList{}
	c.must(c.source.List(c.Context(), sets, client.InNamespace(c.namespace)))
	c.must(c.source.List(c.Context(), deployments, client.InNamespace(c.namespace)))
	for i := range sets.Items {
		c.freeze(&sets.Items[i], &sets.Items[i].Status.Conditions)
	}
	for i := range deployments.Items {
		c.freeze(&deployments.Items[i], &deployments.Items[i].Status.Conditions)
	}
	copied := c.machines(c.destination)
	slices.Reverse(copied)
	for _, m := range copied {
		class := &v1beta1.MachineClass{}
		c.must(c.destination.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: m.Spec.ClassRef.Name}, class))
		_, paused := m.Annotations[v1beta1.AnnotationPaused]
		if class.Annotations[v1beta1.AnnotationAdoptFromCluster] == sourceID && m.Status.Instance == nil && !paused {
			c.launch(c.destination, &m)
			return
		}
	}
}

func (c *clusters) freeze(o client.Object, conditions *[]metav1.Condition) {
	_, frozen := o.GetLabels()[v1beta1.LabelFreeze]
	if meta.IsStatusConditionTrue(*conditions, v1beta1.ConditionFrozen) != frozen {
		setCondition(conditions, v1beta1.ConditionFrozen, frozen)
		c.must(c.source.Status().Update(c.Context(), o))
	}
}

func setCondition(conditions *[]metav1.Condition, kind string, is bool) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: "Played"})
}

func (c *clusters) machines(cluster client.Client) []v1beta1.Machine {
	c.Helper()
	list := &v1beta1.MachineList{}
	c.must(cluster.List(c.Context(), list, client.InNamespace(c.namespace)))
	return list.Items
}

// checkInvariants fails the test unless exactly one cluster may act on each instance.
func (c *clusters) checkInvariants() {
	c.Helper()
	there := map[string]*v1beta1.Machine{}
	for _, m := range c.machines(c.destination) {
		there[m.Name] = &m
	}
	taken := 0
	for _, m := range there {
		if m.Status.Instance != nil {
			taken++
		}
	}
	here := map[string]bool{}
	for _, m := range c.machines(c.source) {
		here[m.Name] = true
		paused := machinestate.IsPaused(&m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPaused)
		if there[m.Name] != nil && !paused && m.Name != c.exempt {
			c.Errorf("machine %s is in the destination, but not paused in the source", m.Name)
		}
		if !m.DeletionTimestamp.IsZero() && (there[m.Name] == nil || there[m.Name].Status.Instance == nil) {
			c.Errorf("machine %s is being deleted from the source, but the destination has not adopted its instance", m.Name)
		}
	}
	for _, name := range []string{"web-1-a", "web-1-b", "alone"}[:c.machineCount] {
		if copied := there[name]; !here[name] && (copied == nil || copied.Status.Instance == nil) {
			c.Errorf("machine %s is gone from the source, but the destination has not adopted its instance", name)
		}
	}
	sets := &v1beta1.MachineSetList{}
	c.must(c.destination.List(c.Context(), sets, client.InNamespace(c.namespace)))
	if len(sets.Items) > 0 && taken < c.machineCount {
		c.Errorf("the destination has a set and %d of %d instances, so it would replace the others", taken, c.machineCount)
	}
}

// checkArrived fails the test unless the destination has all objects and the source has none.
func (c *clusters) checkArrived() {
	c.Helper()
	left, err := backup.List(c.Context(), c.source, c.namespace, true)
	c.must(err)
	for _, o := range left {
		c.Errorf("the source still has %s", nameOf(o))
	}
	all, err := backup.List(c.Context(), c.destination, c.namespace, true)
	c.must(err)
	var names []string
	for _, o := range all {
		names = append(names, fmt.Sprintf("%s/%s", o.GetKind(), o.GetName()))
		for _, key := range []string{v1beta1.AnnotationPaused, movingTo, movedTo, v1beta1.AnnotationAdoptFromCluster,
			v1beta1.AnnotationAdoptFromClusterUntil} {
			if value, found := o.GetAnnotations()[key]; found {
				c.Errorf("%s has the annotation %s=%s", nameOf(o), key, value)
			}
		}
		if value, found := o.GetLabels()[v1beta1.LabelFreeze]; found {
			c.Errorf("%s is frozen: %s", nameOf(o), value)
		}
	}
	want := []string{"Secret/credentials", "MachineClass/small", "Machine/alone", "Machine/web-1-a", "Machine/web-1-b",
		"MachineDisruptionBudget/web", "MachineSet/web-1", "MachineDeployment/web", "MachineHealthCheck/web"}
	if !slices.Equal(names, want) {
		c.Errorf("the destination has %v, expected %v", names, want)
	}
}
