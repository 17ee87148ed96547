package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	admissionwebhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

// strictDriver is a driver named sim that refuses a providerSpec without a size.
type strictDriver struct{ provider.Driver }

func (strictDriver) Name() string { return "sim" }

func (strictDriver) Validate(_ context.Context, r provider.ValidateRequest) error {
	if !strings.Contains(string(r.Class.Spec), `"size"`) {
		return provider.InvalidField("size", "is required")
	}
	return nil
}

func asProvider(mgr manager.Manager) admissionwebhook.Handler {
	return admission.NewProvider(mgr.GetScheme(), strictDriver{})
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func class(namespace, name, spec string) *v1beta1.MachineClass {
	return &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineClassSpec{Provider: "sim", ProviderSpec: raw(spec)}}
}

func machine(namespace, name string, change func(*v1beta1.MachineSpec)) *v1beta1.Machine {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}
	if change != nil {
		change(&m.Spec)
	}
	return m
}

func inline(spec string) func(*v1beta1.MachineSpec) {
	return func(s *v1beta1.MachineSpec) { s.ClassRef, s.Provider, s.ProviderSpec = nil, "sim", raw(spec) }
}

func reserved(s *v1beta1.MachineSpec) {
	s.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x"}
}

func template(change func(*v1beta1.MachineSpec)) v1beta1.MachineTemplateSpec {
	return v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "a"}},
		Spec: machine("", "", change).Spec}
}

func set(namespace, name string, change func(*v1beta1.MachineSpec)) *v1beta1.MachineSet {
	return &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineSetSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, Template: template(change),
		}}
}

func deployment(namespace, name string, change func(*v1beta1.MachineSpec)) *v1beta1.MachineDeployment {
	return &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineDeploymentSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, Template: template(change),
		}}
}

func check(namespace, name string, status corev1.ConditionStatus) *v1beta1.MachineHealthCheck {
	return &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineHealthCheckSpec{
			UnhealthyNodeConditions: []v1beta1.UnhealthyNodeCondition{{Type: corev1.NodeReady, Status: status,
				Timeout: metav1.Duration{Duration: time.Minute}}},
		}}
}

func budget(namespace, name string, maxDisrupted int32, schedules ...string) *v1beta1.MachineDisruptionBudget {
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.FromInt32(maxDisrupted)}}
	for _, schedule := range schedules {
		b.Spec.Windows = append(b.Spec.Windows, v1beta1.DisruptionWindow{Schedule: schedule, TimeZone: "Europe/Berlin",
			Duration: metav1.Duration{Duration: time.Hour}})
	}
	return b
}

// Rules: manager-webhook-refuses, provider-webhook-refuses, unwise-is-warned.
func TestClientsGetErrorsAndWarnings(t *testing.T) {
	one, two := freeAddress(t), freeAddress(t)
	installWebhooks(t, manifests.ManagerWebhook(urlOf(one)), manifests.ProviderWebhook("sim", urlOf(two)))
	serve(t, core, true, asCore, "--webhook-bind-address="+one)
	serve(t, sim, true, asProvider, "--webhook-bind-address="+two)
	ns := env.Namespace(t)
	probe := newListener(t)
	eventually(t, "both webhooks are asked", func() error {
		err := probe.Create(t.Context(), machine(ns, "probe", func(s *v1beta1.MachineSpec) { inline("{}")(s) }),
			client.DryRunAll)
		if !slices.Equal(fields(err), []string{"spec.providerSpec.size"}) {
			return fmt.Errorf("webhook of the provider: %w", err)
		}
		if err := probe.Create(t.Context(), machine(ns, "probe", reserved), client.DryRunAll); fields(err) == nil {
			return fmt.Errorf("webhook of the manager: %w", err)
		}
		return nil
	})
	must(t, "create a class", probe.Create(t.Context(), class(ns, "small", `{"size":"s"}`)))
	must(t, "create a set", probe.Create(t.Context(), set(ns, "other", nil)))

	label, name := "node.labels[machinist.dev/machine]", "classRef.name"
	for what, test := range map[string]struct {
		object  client.Object
		refused string
		warned  string
	}{
		"a class":                {object: class(ns, "new", `{"size":"s"}`)},
		"a class without a size": {object: class(ns, "new", `{}`), refused: "spec.providerSpec.size"},
		"a class of another provider": {object: &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "new"}, Spec: v1beta1.MachineClassSpec{Provider: "other", ProviderSpec: raw("{}")}}},
		"a class with an impossible zone": {object: func() client.Object {
			c := class(ns, "new", `{"size":"s"}`)
			c.Spec.Capacity = &v1beta1.ClassCapacity{Zone: "a,b"}
			return c
		}(), refused: "spec.capacity.zone"},
		"a machine":                       {object: machine(ns, "new", nil)},
		"a machine with a reserved label": {object: machine(ns, "new", reserved), refused: "spec." + label},
		"a machine with a class that does not exist": {object: machine(ns, "new", func(s *v1beta1.MachineSpec) {
			s.ClassRef.Name = "large"
		}), warned: "spec." + name},
		"a machine that adopts": {object: machine(ns, "new", func(s *v1beta1.MachineSpec) {
			s.ProviderID = "sim:///1"
		}), refused: "spec.providerID"},
		"a machine without a drain": {object: machine(ns, "new", func(s *v1beta1.MachineSpec) {
			s.Timeouts.Drain = &metav1.Duration{}
		}), warned: "spec.timeouts.drain"},
		"an inline machine":                {object: machine(ns, "new", inline(`{"size":"s"}`))},
		"an inline machine without a size": {object: machine(ns, "new", inline(`{}`)), refused: "spec.providerSpec.size"},
		"a set with a reserved label":      {object: set(ns, "other", reserved), refused: "spec.template.spec." + label},
		"a set without a size": {object: set(ns, "other", inline(`{}`)),
			refused: "spec.template.spec.providerSpec.size"},
		"a deployment that overlaps": {object: deployment(ns, "new", nil), warned: "spec.selector"},
		"a deployment without a size": {object: deployment(ns, "new", inline(`{}`)),
			refused: "spec.template.spec.providerSpec.size", warned: "spec.selector"},
		"a check": {object: check(ns, "new", corev1.ConditionFalse)},
		"a check with Ready=True as unhealthy": {object: check(ns, "new", corev1.ConditionTrue),
			refused: "spec.unhealthyNodeConditions[0].status"},
		"a budget": {object: budget(ns, "new", 0, "0 22 * * *")},
		"a budget with an impossible window": {object: budget(ns, "new", 0, "0 22 * * *", "0 0 30 2 *"),
			refused: "spec.windows[1].schedule"},
		"a budget that blocks": {object: budget(ns, "new", 0), warned: "spec.maxDisrupted"},
	} {
		t.Run(what, func(t *testing.T) {
			c := newListener(t)
			// The cache of the webhook may not contain the set yet.
			eventually(t, "the webhook has read the objects", func() error {
				test.object.SetResourceVersion("")
				err := c.Create(t.Context(), test.object, client.DryRunAll)
				if test.object.GetName() == "other" {
					err = tryUpdate(t, c, test.object)
				}
				if got := strings.Join(fields(err), " "); got != test.refused || test.refused == "" && err != nil {
					t.Fatalf("refused for %q, want %q: %v", got, test.refused, err)
				}
				if test.warned != "" && !slices.ContainsFunc(c.heard(), func(w string) bool {
					return strings.HasPrefix(w, test.warned+": ")
				}) {
					return fmt.Errorf("warned of %q, want %s", c.heard(), test.warned)
				}
				return nil
			})
			if test.warned == "" && len(c.heard()) > 0 {
				t.Errorf("warned of %q", c.heard())
			}
		})
	}
}

func tryUpdate(t *testing.T, c client.Client, wanted client.Object) error {
	t.Helper()
	now := &v1beta1.MachineSet{}
	must(t, "get the set", c.Get(t.Context(), client.ObjectKeyFromObject(wanted), now))
	now.Spec.Template = wanted.(*v1beta1.MachineSet).Spec.Template
	return c.Update(t.Context(), now, client.DryRunAll)
}

// No process serves the webhooks. Only new providerSpecs are refused, because only the provider can validate them.
//
// Rule: works-without-webhooks.
func TestOnlyNewProviderSpecsDependOnTheWebhooks(t *testing.T) {
	ctx, c, ns := t.Context(), env.Client(t), env.Namespace(t)
	const hold = "test.machinist.dev/hold"
	small, bare := class(ns, "small", `{"a":1}`), machine(ns, "bare", inline(`{"a":1}`))
	fleet, owner := set(ns, "fleet", inline(`{"a":1}`)), deployment(ns, "fleet", inline(`{"a":1}`))
	for _, o := range []client.Object{small, bare, fleet, owner} {
		o.SetFinalizers([]string{hold})
		must(t, "create", c.Create(ctx, o))
	}
	unserved := freeAddress(t)
	installWebhooks(t, manifests.ManagerWebhook(urlOf(unserved)), manifests.ProviderWebhook("sim", urlOf(unserved)))
	refused := func(err error) error {
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("got %w, want a failed call of the webhook", err)
		}
		return nil
	}
	for what, o := range map[string]client.Object{
		"class": class(ns, "new", `{}`), "machine": machine(ns, "new", inline(`{}`)),
		"set": set(ns, "new", inline(`{}`)), "deployment": deployment(ns, "new", inline(`{}`)),
	} {
		eventually(t, "a "+what+" is refused", func() error {
			return refused(c.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll))
		})
	}
	changed := fleet.DeepCopy()
	changed.Spec.Template.Spec.ProviderSpec = raw(`{"b":1}`)
	must(t, "change a providerSpec", refused(c.Update(ctx, changed, client.DryRunAll)))
	changed = fleet.DeepCopy()
	changed.Spec.Template.Spec.Provider = "other"
	must(t, "change to a provider without a webhook", c.Update(ctx, changed, client.DryRunAll))

	us := rest.CopyConfig(env.Config())
	us.Impersonate = rest.ImpersonationConfig{UserName: core, Groups: []string{"machinist-processes", "system:masters"}}
	account := rest.CopyConfig(env.Config())
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:machinist-system:m",
		Groups: []string{"system:serviceaccounts:machinist-system", "system:masters"}}
	for _, config := range []*rest.Config{us, account} {
		processes, err := client.New(config, client.Options{Scheme: env.Scheme()})
		must(t, "make a client", err)
		must(t, "the processes create a machine from a template", processes.Create(ctx, machine(ns, "made", inline(`{}`)),
			client.DryRunAll))
		moved := bare.DeepCopy()
		moved.Spec.ProviderSpec = raw(`{"b":1}`)
		must(t, "the processes give a machine another spec", processes.Update(ctx, moved, client.DryRunAll))
		must(t, "the processes create a set", processes.Create(ctx, set(ns, "made", inline(`{}`)), client.DryRunAll))
	}

	must(t, "create a bad machine", c.Create(ctx, machine(ns, "bad", reserved)))
	must(t, "create a class in kube-system", c.Create(ctx, class(metav1.NamespaceSystem, "small", `{}`), client.DryRunAll))
	must(t, "create a machine in kube-system", c.Create(ctx, machine(metav1.NamespaceSystem, "bare", inline(`{}`)),
		client.DryRunAll))
	for _, o := range []client.Object{small, bare, fleet, owner} {
		what := fmt.Sprintf("%T", o)
		o.SetAnnotations(map[string]string{"test": "x"})
		must(t, what+": annotate", c.Update(ctx, o))
		before := o.DeepCopyObject().(client.Object)
		switch o := o.(type) {
		case *v1beta1.MachineClass:
			o.Status.ObservedGeneration = 1
		case *v1beta1.Machine:
			o.Status.ObservedGeneration = 1
		case *v1beta1.MachineSet:
			o.Status.ObservedGeneration = 1
		case *v1beta1.MachineDeployment:
			o.Status.ObservedGeneration = 1
		}
		must(t, what+": status", c.Status().Patch(ctx, o, client.MergeFrom(before)))
		switch o := o.(type) {
		case *v1beta1.Machine:
			o.Spec.ProviderID = "sim:///1"
			must(t, what+": record the instance", c.Update(ctx, o))
		case *v1beta1.MachineSet:
			o.Spec.Replicas = ptr.To[int32](3)
			must(t, what+": scale", c.Update(ctx, o))
		case *v1beta1.MachineDeployment:
			o.Spec.Paused = true
			must(t, what+": pause", c.Update(ctx, o))
		}
		must(t, what+": delete", c.Delete(ctx, o))
		must(t, what+": read", c.Get(ctx, client.ObjectKeyFromObject(o), o))
		o.SetFinalizers(nil)
		must(t, what+": release", c.Update(ctx, o))
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s: the object still exists: %v", what, err)
		}
	}
}
