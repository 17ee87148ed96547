package api

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

// Machinist creates Machines only from templates that the policies have checked. So the policies skip Machines that a
// process creates, but they check the updates of a process like those of any user.
//
// Rule: malformed-annotations-refused.
func TestPoliciesApplyToUpdatesOfProcesses(t *testing.T) {
	namespace := env.Namespace(t)
	awaitPolicies(t, true)
	config := rest.CopyConfig(env.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "machinist-manager",
		Groups: []string{"machinist-processes", "system:masters"}}
	process, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const wrong = "forever"
	valid := parse(t, namespace, machine)
	requireRejection(t, env.Client(t).Create(t.Context(), apply(t, valid.DeepCopy(), change{preserve, wrong})),
		"preserve")
	if err := process.Create(t.Context(), apply(t, valid.DeepCopy(), change{preserve, wrong}),
		client.DryRunAll); err != nil {
		t.Errorf("a process cannot create a Machine: %v", err)
	}
	existing := create(t, apply(t, valid, change{provider, "sim"}))
	requireRejection(t, process.Update(t.Context(), apply(t, existing.DeepCopy(), change{preserve, wrong})), "preserve")
	requireRejection(t, process.Update(t.Context(), apply(t, existing.DeepCopy(), change{provider, "No_Label"})),
		"provider")
	if err := process.Update(t.Context(), apply(t, existing, change{"spec/version", "v1.36.3"})); err != nil {
		t.Errorf("a process cannot change an unrelated field: %v", err)
	}
}
