package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/test/env"
)

// Rule: fleet-pause.
func TestFleetPauseAndResume(t *testing.T) {
	p := newTestFleet(t)
	run := func(args ...string) outcome { return execute(t, append(args, "-n", p.namespace)...) }
	run("pause").fails(t, "--fleet is missing", "machinist rollout pause md/NAME")
	run("resume").fails(t, "--fleet is missing", "machinist rollout resume md/NAME")
	run("pause", "md/web", "--fleet").fails(t, "unknown command")
	run("resume", "--fleet").fails(t, "the fleet of namespace", "is not paused")

	run("pause", "--fleet", "--reason", "the network\x1b[2J is repaired").succeeds(t).
		prints(t, "namespace/"+p.namespace+" paused\n")
	b := &v1beta1.MachineDisruptionBudget{}
	key := client.ObjectKey{Namespace: p.namespace, Name: disruption.PauseBudget}
	if err := p.api.Get(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	parsed, err := disruption.Parse(b)
	if err != nil || parsed.AllowedDisruptions(1000) != 0 || !parsed.Selects(map[string]string{"any": "machine"}) ||
		!parsed.InForce(time.Now()) {
		t.Errorf("the budget does not stop all disruptions: %+v, %v", b.Spec, err)
	}
	for _, reason := range v1beta1.DisruptionReasons {
		if !parsed.AppliesTo(reason) {
			t.Errorf("the budget does not stop %s", reason)
		}
	}
	by := b.Annotations[v1beta1.AnnotationPausedBy]
	if by == "" || b.Annotations[v1beta1.AnnotationPauseReason] != "the network\x1b[2J is repaired" {
		t.Errorf("annotations %v", b.Annotations)
	}
	run("pause", "--fleet").succeeds(t).prints(t, "already paused (paused at ", " by "+by+": the network[2J is repaired)")
	run("status").succeeds(t).prints(t, "DISRUPTION BUDGET", disruption.PauseBudget,
		"by "+by+": the network[2J is repaired")

	b.Spec.MaxDisrupted = intstr.FromInt32(5)
	if err := p.api.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	run("pause", "--fleet").fails(t, "was changed and does not stop all disruptions", "machinist resume --fleet -n")
	run("resume", "--fleet", "-o", "yaml").succeeds(t).prints(t, "kind: PauseResult", "done: resumed", "by: "+by)
	if err := p.api.Get(t.Context(), key, b); !apierrors.IsNotFound(err) {
		t.Errorf("the budget still exists: %v", err)
	}
	run("pause", "--fleet", "--as", "looker").fails(t, "you do not have the permission", "machinedisruptionbudgets")
}

// The test uses a separate API server, so that it does not pause the namespaces of other tests.
//
// Rule: fleet-pause.
func TestPauseOfAllFleetsContinuesAfterError(t *testing.T) {
	object := func(o client.Object, namespace, name string) client.Object {
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machinedisruptionbudgets"}, "", nil)
	api := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(
		object(&v1beta1.Machine{}, "a", "m"), object(&v1beta1.MachineSet{}, "a", "s"),
		object(&v1beta1.MachineDeployment{}, "b", "d"), object(&v1beta1.Machine{}, "secret", "m"),
	).WithIndex(&v1beta1.MachineDisruptionBudget{}, metav1.ObjectNameField, func(o client.Object) []string {
		return []string{o.GetName()}
	}).WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		options ...client.CreateOption) error {
		if review, ok := o.(*authenticationv1.SelfSubjectReview); ok {
			review.Status.UserInfo.Username = "jane"
			return nil
		}
		if o.GetNamespace() == "secret" {
			return forbidden
		}
		return c.Create(ctx, o, options...)
	}}).Build()
	c := &Cluster{WithWatch: api, Namespace: "b"}
	namespaces := func(done []fleet.Pause) (text string) {
		for _, p := range done {
			text += p.Namespace + " " + p.Outcome + ", "
		}
		return text
	}
	done, err := c.pause(t.Context(), pauseFlags{all: true})
	if namespaces(done) != "a paused, b paused, " || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"secret"`) {
		t.Errorf("paused %v, %v", done, err)
	}
	if len(done) > 0 && done[0].By != "jane" {
		t.Errorf("paused by %q", done[0].By)
	}
	done, err = c.resume(t.Context(), pauseFlags{})
	if namespaces(done) != "b resumed, " || err != nil {
		t.Errorf("resumed %v, %v", done, err)
	}
	done, err = c.pause(t.Context(), pauseFlags{all: true})
	if namespaces(done) != "a already paused, b paused, " || err == nil {
		t.Errorf("paused %v, %v", done, err)
	}
	done, err = c.resume(t.Context(), pauseFlags{all: true})
	if namespaces(done) != "a resumed, b resumed, " || err != nil {
		t.Errorf("resumed %v, %v", done, err)
	}
	if _, err = c.resume(t.Context(), pauseFlags{all: true}); err == nil || err.Error() != "no fleet is paused in any namespace" {
		t.Error(err)
	}
}

// Rule: replace-asked-by-annotation.
func TestReplaceMarksMachine(t *testing.T) {
	p := newTestFleet(t)
	set := p.fleet()
	m := p.machine("web-1-x", set)
	p.machine("alone", nil)
	leaving := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "leaving",
		Finalizers: []string{"test.machinist.dev/hold"}, OwnerReferences: m.OwnerReferences}, Spec: spec()}
	p.create(leaving)
	if err := p.api.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) outcome { return execute(t, append(args, "-n", p.namespace)...) }
	run("replace", "machine/nowhere").fails(t, `machine "nowhere" not found`)
	run("replace", "md/web").fails(t, `the type "md" is not one of: machine`)
	run("replace", "machine/alone").fails(t, `machine "alone" is not owned by a MachineSet`)
	run("replace", "machine/leaving").fails(t, `machine "leaving" is already being deleted`)
	run("replace", "machine/leaving", "--cancel").fails(t, "cannot be cancelled")
	run("replace", "machine/web-1-x", "--cancel").fails(t, `machine "web-1-x" is not being replaced`)
	run("replace", "machine/web-1-x").succeeds(t).prints(t, "machine.machinist.dev/web-1-x will be replaced\n")
	marked := func() bool {
		now := &v1beta1.Machine{}
		if err := env.Client(t).Get(t.Context(), client.ObjectKeyFromObject(m), now); err != nil {
			t.Fatal(err)
		}
		_, ok := now.Annotations[v1beta1.AnnotationReplace]
		return ok
	}
	if !marked() {
		t.Error("the machine does not have the annotation")
	}
	run("replace", "machine/web-1-x").fails(t, `machine "web-1-x" is already being replaced`, "machinist why machine/web-1-x")
	run("replace", "machine", "web-1-x", "--cancel", "-o", "yaml").succeeds(t).prints(t, "kind: ReplaceResult",
		"done: will not be replaced")
	if marked() {
		t.Error("the machine still has the annotation")
	}
}
