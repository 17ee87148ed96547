package api

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// A provider process may write only the classes and Machines of its own provider, and Machines that do not belong to
// any provider yet.
//
// Rule: providers-write-own-objects.
func TestProviderWritesOnlyItsOwnObjects(t *testing.T) {
	namespace, c := env.Namespace(t), env.Client(t)
	const reported = "status/instance/provider"
	stored := func(sample, name string, status any, changes ...change) *unstructured.Unstructured {
		object := create(t, apply(t, parse(t, namespace, sample), append(changes, change{"metadata/name", name})...))
		if status == nil {
			return object
		}
		if err := c.Status().Update(t.Context(), apply(t, object, change{reported, status})); err != nil {
			t.Fatal(err)
		}
		return object
	}
	ofOther := change{provider, "other"}
	objects := map[string]*unstructured.Unstructured{
		"own class":           stored(class, "own", nil),
		"other class":         stored(class, "other", nil, change{"spec/provider", "other"}),
		"unclaimed":           stored(machine, "unclaimed", nil),
		"own":                 stored(machine, "own", "sim", change{provider, "sim"}),
		"own inline":          stored(inlineMachine, "own-inline", nil),
		"own, status forged":  stored(machine, "forged", "other", change{provider, "sim"}),
		"other":               stored(machine, "other", nil, ofOther),
		"other inline":        stored(inlineMachine, "other-inline", nil, change{"spec/provider", "other"}),
		"other by its status": stored(machine, "other-status", "other"),
		"other, empty status": stored(machine, "other-empty", "", ofOther),
	}
	patch := func(user client.Client, of, text string) error {
		return user.Patch(t.Context(), objects[of].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)),
			client.DryRunAll)
	}
	patchStatus := func(user client.Client, of, text string) error {
		return user.Status().Patch(t.Context(), objects[of].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)),
			client.DryRunAll)
	}
	remove := func(user client.Client, of string) error {
		return user.Delete(t.Context(), objects[of].DeepCopy(), client.DryRunAll)
	}
	const (
		label    = `{"metadata":{"labels":{"a":"b"}}}`
		claim    = `{"metadata":{"labels":{"machinist.dev/provider":"sim"}}}`
		giveAway = `{"metadata":{"labels":{"machinist.dev/provider":"other"}}}`
		running  = `{"status":{"phase":"Running"}}`
		forge    = `{"status":{"instance":{"provider":"other"}}}`
	)
	sim := asProcess(t, "machinist-provider-sim")
	await(t, "the policy for providers", func() bool { return refusedBy("providers", patch(sim, "other", label)) })
	users := map[string]client.Client{
		"sim":                   sim,
		"sim with a kubeconfig": impersonate(t, "machinist-provider-sim", "machinist-processes", "system:masters"),
		"sim in a namespace with the name of a provider": impersonate(t,
			"system:serviceaccount:machinist-provider-other:machinist-provider-sim", "system:masters"),
	}
	for name, user := range users {
		for _, of := range []string{"own class", "unclaimed", "own", "own inline", "own, status forged"} {
			for what, err := range map[string]error{"change": patch(user, of, label), "delete": remove(user, of)} {
				if err != nil {
					t.Errorf("the provider %s cannot %s %s: %v", name, what, of, err)
				}
			}
		}
		for _, of := range []string{"other class", "other", "other inline", "other by its status", "other, empty status"} {
			for what, err := range map[string]error{"change": patch(user, of, label), "delete": remove(user, of),
				"change the status of": patchStatus(user, of, `{"status":{"observedGeneration":1}}`)} {
				if !refusedBy("providers", err) {
					t.Errorf("the provider %s may %s %s: got error %v, want a rejection by the policy", name, what, of, err)
				}
			}
		}
	}
	for what, err := range map[string]error{
		"claim a Machine":                              patch(sim, "unclaimed", claim),
		"write the status of a Machine":                patchStatus(sim, "own", running),
		"write the status of a Machine, status forged": patchStatus(sim, "own, status forged", running),
	} {
		if err != nil {
			t.Errorf("the provider cannot %s: %v", what, err)
		}
	}
	const account = "system:serviceaccount:" + manifests.Namespace + ":machinist-provider-sim.x"
	dotted := impersonate(t, account, "system:serviceaccounts:"+manifests.Namespace, "system:masters")
	for what, err := range map[string]error{
		"claims the Machine of another provider":              patch(sim, "other by its status", claim),
		"gives an unclaimed Machine to another":               patch(sim, "unclaimed", giveAway),
		"gives its Machine to another":                        patch(sim, "own inline", giveAway),
		"lets another provider delete a foreign instance":     patchStatus(sim, "unclaimed", forge),
		"lets another provider delete an instance of its own": patchStatus(sim, "own", forge),
		"with a dot in its name writes a Machine of sim":      patch(dotted, "own", label),
	} {
		// The policy for Machines also refuses the request if the label and spec.provider name different providers.
		if !refusedBy("providers", err) && !refusedBy("machine", err) {
			t.Errorf("the provider %s: got error %v, want a rejection by the policy", what, err)
		}
	}
}
