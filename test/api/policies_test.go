package api

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/test/env"
)

const (
	minSize  = "metadata/annotations/" + "machinist.dev~1cluster-api-autoscaler-node-group-min-size"
	maxSize  = "metadata/annotations/" + "machinist.dev~1cluster-api-autoscaler-node-group-max-size"
	priority = "metadata/annotations/" + "machinist.dev~1delete-priority"
	preserve = "metadata/annotations/" + "machinist.dev~1preserve"
	provider = "metadata/labels/" + "machinist.dev~1provider"
)

func TestPoliciesAdmitValidValues(t *testing.T) {
	awaitPolicies(t, true)
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		requireAdmitted(t, []valid{
			{kind + " with bounds", sample, []change{{minSize, "0"}, {maxSize, "10"}}},
			{kind + " with equal bounds", sample, []change{{minSize, "3"}, {maxSize, "3"}}},
			{kind + " with a lower bound only", sample, []change{{minSize, "1"}}},
			{kind + " with a priority in its template", sample, []change{{"spec/template/" + priority, "1"}}},
			{kind + " with the labels of its deployment", sample, []change{
				{"metadata/ownerReferences", []any{map[string]any{
					"apiVersion": machinistv1.GroupVersion.String(), "kind": "MachineDeployment", "name": "d", "uid": "1",
					"controller": true,
				}}},
				{"spec/template/metadata/labels", map[string]any{"pool": "a", machinistv1.LabelTemplateHash: "x",
					machinistv1.LabelMachineDeployment: "d"}},
			}},
			{kind + " with preserve in its template", sample, []change{{"spec/template/" + preserve, "when-failed"}}},
		})
	}
	requireAdmitted(t, []valid{
		{"priority", machine, []change{{priority, "1"}}},
		{"negative priority", machine, []change{{priority, "-5"}}},
		{"preserve now", machine, []change{{preserve, "now"}}},
		{"preserve when failed", machine, []change{{preserve, "when-failed"}}},
		{"annotations with arbitrary values", machine, []change{
			{"metadata/annotations/machinist.dev~1paused", ""}, {"metadata/annotations/machinist.dev~1skip-drain", "whatever"},
		}},
		{"provider", machine, []change{{provider, "sim"}}},
		{"provider label equal to spec.provider", inlineMachine, []change{{provider, "sim"}}},
	})
}

// The webhook is not called for a change that leaves the spec as it was.
//
// Rule: hibernation-not-autoscaled.
func TestPolicyRefusesBoundsOfHibernatedFleets(t *testing.T) {
	awaitPolicies(t, true)
	namespace := env.Namespace(t)
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		object := create(t, apply(t, parse(t, namespace, sample), change{"spec/hibernated", true}))
		for _, bound := range []string{minSize, maxSize} {
			requireRejection(t, tryUpdate(t, apply(t, object.DeepCopy(), change{bound, "3"})), "spec.hibernated")
		}
		err := tryUpdate(t, apply(t, object, change{"spec/hibernated", nil}, change{minSize, "3"}))
		if err != nil {
			t.Errorf("the bounds of a %s that is no longer hibernated are refused: %v", kind, err)
		}
	}
}

// The schema also contains a rule, but that rule does not detect a renamed key.
func TestProviderSpecKeyCannotBeRenamed(t *testing.T) {
	awaitPolicies(t, true)
	object := create(t, parse(t, env.Namespace(t), class))
	requireRejection(t, tryUpdate(t, renameProviderSpecKey(t, object)), "spec.providerSpec")
}

func renameProviderSpecKey(t *testing.T, class *unstructured.Unstructured) *unstructured.Unstructured {
	return apply(t, class.DeepCopy(), change{"spec/providerSpec/instanceType", nil},
		change{"spec/providerSpec/instanceTyp", "small"})
}

// An object with a value that is older than the policies must still accept updates.
//
// Rule: malformed-annotations-refused.
func TestPoliciesIgnoreUnchangedValues(t *testing.T) {
	namespace, c := env.Namespace(t), env.Client(t)
	awaitPolicies(t, true)
	removePolicies(t)
	bad := create(t, apply(t, parse(t, namespace, machine),
		change{priority, "low"}, change{preserve, "sometimes"}, change{provider, "Sim"},
		change{"metadata/finalizers", []string{"test.machinist.dev/hold"}}))
	badSet := create(t, apply(t, parse(t, namespace, set), change{minSize, "many"}, change{maxSize, "few"},
		change{"spec/template/" + priority, "low"}))
	if err := install.Install(t.Context(), env.Config()); err != nil {
		t.Fatal(err)
	}
	awaitPolicies(t, true)

	for name, err := range map[string]error{
		"spec": tryUpdate(t, apply(t, bad.DeepCopy(), change{"spec/version", "v1.36.3"})),
		"another annotation": tryUpdate(t,
			apply(t, bad.DeepCopy(), change{"metadata/annotations/machinist.dev~1paused", ""})),
		"finalizers":               tryUpdate(t, apply(t, bad.DeepCopy(), change{"metadata/finalizers", nil})),
		"the value to a valid one": tryUpdate(t, apply(t, bad.DeepCopy(), change{priority, "1"})),
		"the value to none":        tryUpdate(t, apply(t, bad.DeepCopy(), change{preserve, nil})),
		"status": c.Status().Update(t.Context(), apply(t, bad.DeepCopy(), change{"status/phase", "Pending"}),
			client.DryRunAll),
		"replicas of a set":                    tryUpdate(t, apply(t, badSet.DeepCopy(), change{"spec/replicas", 3})),
		"max of a set, with min still invalid": tryUpdate(t, apply(t, badSet.DeepCopy(), change{maxSize, "3"})),
	} {
		if err != nil {
			t.Errorf("a change of %s is refused: %v", name, err)
		}
	}
	requireRejection(t, tryUpdate(t, apply(t, bad.DeepCopy(), change{priority, "lower"})), "machinist.dev/delete-priority")
	requireRejection(t, tryUpdate(t, apply(t, badSet.DeepCopy(), change{minSize, "more"})),
		machinistv1.AutoscalerMinSizeAnnotation)

	// The policies must not block the deletion of an object.
	if err := c.Delete(t.Context(), bad); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(bad), bad); err != nil {
		t.Fatal(err)
	}
	if err := tryUpdate(t, apply(t, bad.DeepCopy(), change{priority, "lowest"})); err != nil {
		t.Errorf("an update of a machine that is being deleted is refused: %v", err)
	}
	if err := c.Update(t.Context(), apply(t, bad, change{"metadata/finalizers", nil})); err != nil {
		t.Errorf("the finalizer cannot be removed: %v", err)
	}
}

func removePolicies(t *testing.T) {
	t.Helper()
	c := env.Client(t)
	for _, name := range []string{"machine.machinist.dev", "fleet.machinist.dev"} {
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	awaitPolicies(t, false)
}

func awaitPolicies(t *testing.T, inForce bool) {
	t.Helper()
	namespace := env.Namespace(t)
	subject := create(t, parse(t, namespace, class))
	await(t, "the policy for machines", func() bool {
		return refusedBy("machine", tryCreate(t, apply(t, parse(t, namespace, machine), change{priority, "x"}))) == inForce
	})
	await(t, "the policy for fleets", func() bool {
		return refusedBy("fleet", tryCreate(t, apply(t, parse(t, namespace, set), change{minSize, "x"}))) == inForce
	})
	if inForce {
		await(t, "the policy for classes", func() bool {
			return refusedBy("machineclass", tryUpdate(t, renameProviderSpecKey(t, subject)))
		})
	}
}

func refusedBy(policy string, err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+".machinist.dev'")
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, env.Patience, true,
		func(context.Context) (bool, error) {
			return done(), nil
		})
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// A server-side apply that removes the last annotation or label can leave null in the field. A policy must treat null
// like an empty map.
//
// Rule: malformed-annotations-refused.
func TestPoliciesAdmitNullAfterServerSideApply(t *testing.T) {
	namespace, c := env.Namespace(t), env.Client(t)
	awaitPolicies(t, true)
	for _, text := range []string{machine, set, deployment} {
		object := create(t, apply(t, parse(t, namespace, text), change{"metadata/annotations/example.com~1mine", ""},
			change{"metadata/labels/example.com~1mine", ""}))
		sendApply := func(changes ...change) {
			t.Helper()
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetGroupVersionKind(object.GroupVersionKind())
			o.SetNamespace(namespace)
			o.SetName(object.GetName())
			if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply(t, o, changes...)),
				client.FieldOwner("gitops")); err != nil {
				t.Errorf("apply %s: %v", object.GetKind(), err)
			}
		}
		sendApply(change{"metadata/annotations/example.com~1theirs", ""}, change{"metadata/labels/example.com~1theirs", ""})
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		object.SetAnnotations(map[string]string{"example.com/theirs": ""})
		object.SetLabels(map[string]string{"example.com/theirs": ""})
		if err := c.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		sendApply()
	}
}
