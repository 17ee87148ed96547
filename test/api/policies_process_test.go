package api

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

// The processes of Machinist create Machines only from templates that the policies have already checked. Therefore, the
// policies do not check Machines that a process creates. But they must check updates by a process in the same way as
// updates by other users.
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
