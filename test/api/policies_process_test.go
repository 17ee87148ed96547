package api

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

// A process makes Machines from a template that was judged. What it changes later is judged as what others change.
//
// Rule: malformed-annotations-refused.
func TestOfAProcessPoliciesJudgeWhatItChanges(t *testing.T) {
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
	judged := parse(t, namespace, machine)
	requireRejection(t, env.Client(t).Create(t.Context(), apply(t, judged.DeepCopy(), change{preserve, wrong})),
		"preserve")
	if err := process.Create(t.Context(), apply(t, judged.DeepCopy(), change{preserve, wrong}),
		client.DryRunAll); err != nil {
		t.Errorf("a process that makes a Machine is refused: %v", err)
	}
	there := create(t, apply(t, judged, change{provider, "sim"}))
	requireRejection(t, process.Update(t.Context(), apply(t, there.DeepCopy(), change{preserve, wrong})), "preserve")
	requireRejection(t, process.Update(t.Context(), apply(t, there.DeepCopy(), change{provider, "No_Label"})), "provider")
	if err := process.Update(t.Context(), apply(t, there, change{"spec/version", "v1.36.3"})); err != nil {
		t.Errorf("a change of something else is refused: %v", err)
	}
}
