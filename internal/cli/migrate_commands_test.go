package cli

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
	"machinist.dev/machinist/test/env"
)

func losses() []v1beta1.MigrationFinding {
	return []v1beta1.MigrationFinding{
		{Level: "Loss", Code: "NoUserData", Count: 2, Message: "The old system generated the bootstrap data."},
		{Level: "Loss", Code: "UnknownField", Count: 1, Message: "The field is unknown."},
		{Level: "Note", Code: "Renamed", Count: 1, Message: "The machine gets another name."},
	}
}

func TestMigrationAdoptsFleetAndCommits(t *testing.T) {
	f := newOldFleet(t, losses()...)
	f.run("run", "old-fleet").fails(t, `migration "old-fleet" not found in namespace`)
	f.plan("--stop", "deployment/kube-system/machine-controller").
		fails(t, "accept the losses: machinist migrate run old-fleet -n "+f.namespace+" --accept NoUserData,UnknownField").
		prints(t, "cluster.k8s.io in namespace "+f.namespace+", to provider fake", "2 machines with an instance",
			"Classes:      small", "NoUserData   in 2 places", "The old system generated the bootstrap data.", "NOTES", "Plan:         hash")
	f.run("plan", "old-fleet", "--all").fails(t, "cannot start").prints(t, "Machine/1 spec.x: The old system generated")
	manifests := f.run("plan", "old-fleet", "-o", "yaml").fails(t, "cannot start")
	if want := "apiVersion: machinist.dev/v1beta1\nkind: MachineClass\nmetadata:\n  name: small\n---\n" +
		"apiVersion: machinist.dev/v1beta1\nkind: MachineDeployment\nmetadata:\n  name: web\n"; manifests.out != want {
		t.Errorf("-o yaml wrote\n%s", manifests.out)
	}
	var list struct {
		Kind  string
		Items []struct{ Kind string }
	}
	if err := json.Unmarshal([]byte(f.run("plan", "old-fleet", "-o", "json").out), &list); err != nil ||
		list.Kind != "List" || len(list.Items) != 2 || list.Items[1].Kind != "MachineDeployment" {
		t.Errorf("-o json: %v, %+v", err, list)
	}

	f.run("run", "old-fleet", "--accept", "NoUserData").fails(t, "accept the losses",
		"--accept NoUserData,UnknownField").prints(t, "NoUserData   in 2 places   accepted")
	f.run("run", "old-fleet", "--accept", "Renamed").fails(t, `--accept "Renamed"`, "only NoUserData, UnknownField")
	f.run("commit", "old-fleet", "--yes").fails(t, `status.phase is "Planning" and must be Adopted`, "machinist migrate run old-fleet")
	if m := f.migration("old-fleet"); m.Spec.Stage != v1beta1.MigrationPlan || len(m.Spec.Accept) > 0 {
		t.Fatalf("a failed command changed the Migration: %+v", m.Spec)
	}

	f.run("run", "old-fleet", "--accept", "NoUserData, UnknownField").succeeds(t).prints(t, "LOSSES",
		"Next: The migration waits for you.", "machinist migrate commit old-fleet -n "+f.namespace, "machinist migrate abort old-fleet -n "+f.namespace)
	m := f.migration("old-fleet")
	if m.Spec.Stage != v1beta1.MigrationAdopt || m.Spec.PlanHash != "hash" ||
		!slices.Equal(m.Spec.Accept, []string{"NoUserData", "UnknownField"}) || len(m.Spec.Fence.Workloads) != 1 {
		t.Errorf("the Migration is %+v", m.Spec)
	}
	f.run("run", "old-fleet").succeeds(t).prints(t, "Adopted")
	f.run("plan", "old-fleet").succeeds(t).prints(t, "The migration is in the phase Adopted.")

	for _, typed := range []string{"", "no\n", "old\n"} {
		executeAt(t, env.Kubeconfig(), typed, "migrate", "commit", "old-fleet", "-n", f.namespace).
			fails(t, "nothing was done", "--yes")
	}
	if stage := f.migration("old-fleet").Spec.Stage; stage != v1beta1.MigrationAdopt {
		t.Fatalf("without a confirmation the stage is %s", stage)
	}
	kubeconfig := env.Kubeconfig()
	done := executeAt(t, kubeconfig, "old-fleet\n", "migrate", "commit", "old-fleet", "-n", f.namespace).succeeds(t).prints(t, "Machinist alone manages the fleet")
	if !strings.Contains(done.err, "This is the point of no return") {
		t.Errorf("the question is %q", done.err)
	}
	f.run("commit", "old-fleet").succeeds(t)
	f.run("abort", "old-fleet").fails(t, "status.phase is Completed, past the point of no return")
	f.run("run", "old-fleet").fails(t, "has ended with status.phase Completed")
	execute(t, "why", "migration/old-fleet", "-n", f.namespace).succeeds(t).prints(t, "Completed: Machinist alone manages the fleet.")
}

func TestAbortGivesFleetBack(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t).prints(t, "To stop the old system and adopt the fleet:", "machinist migrate run old-fleet")
	f.run("run", "old-fleet").succeeds(t)
	f.run("abort", "old-fleet").succeeds(t).prints(t, "the old system manages the fleet again", "kubectl delete migration old-fleet")
	f.run("abort", "old-fleet", "--wait=false").succeeds(t)
	f.run("commit", "old-fleet", "--yes").fails(t, "cannot be committed: spec.stage is Abort")
	f.run("run", "old-fleet").fails(t, "has ended with status.phase Aborted")
	f.plan("--exclude", "machine/a").fails(t, "create another one: kubectl delete migration old-fleet")
	f.plan("--stop", "deploy/a/b").fails(t, "has ended; delete the Migration")
	f.plan("--flag", "x=y").fails(t, "--flag: spec.processFlags", "because spec.stage is Abort")
}

// Deleting a Migration aborts it. A finalizer keeps the object until then.
func TestDeletedMigrationCannotRunOrCommit(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t)
	f.run("run", "old-fleet").succeeds(t)
	m := f.migration("old-fleet")
	was := m.DeepCopy()
	m.Finalizers = []string{v1beta1.MigrationFinalizer}
	f.must(f.api.Patch(context.Background(), m, client.MergeFrom(was)))
	f.must(f.api.Delete(context.Background(), m))
	f.run("run", "old-fleet").fails(t, `migration "old-fleet" is being deleted, which aborts it`)
	f.run("commit", "old-fleet", "--yes").fails(t, "it is being deleted, which aborts it")
	f.run("status", "old-fleet").succeeds(t).prints(t, "The Migration is being deleted", "The migrator gives the instances back")
	m = f.migration("old-fleet")
	was = m.DeepCopy()
	m.Finalizers = nil
	f.must(f.api.Patch(context.Background(), m, client.MergeFrom(was)))
}

func TestRunWithCommitCompletesMigration(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t)
	f.migrator.set(func(p *fakeMigrator) { p.problems[v1beta1.MigrationAdopting] = "slow" })
	f.run("run", "old-fleet", "--commit", "--wait=false").succeeds(t).prints(t, "The migration commits automatically")
	f.run("commit", "old-fleet", "--yes").fails(t, "commits automatically, because spec.stage is Commit")
	// "migrate run" without --commit does not undo an earlier commit.
	f.runHooked(context.Background(), "Problem: slow", func() {
		if stage := f.migration("old-fleet").Spec.Stage; stage != v1beta1.MigrationCommit {
			t.Errorf("the stage is %s", stage)
		}
		f.migrator.set(func(p *fakeMigrator) { clear(p.problems) })
	}, "run", "old-fleet").succeeds(t).prints(t, "Machinist alone manages the fleet")
}

func TestRunSetsFence(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t)
	f.run("run", "old-fleet", "--commit", "-o", "json", "--lease", "kube-system/machine-controller", "--no-leader-election",
		"--stop", "sts/kube-system/a").succeeds(t).prints(t, `"phase": "Completed"`)
	fence := f.migration("old-fleet").Spec.Fence
	if len(fence.Leases) != 1 || fence.ElectsLeaderOrDefault() || fence.Workloads[0].Kind != "StatefulSet" {
		t.Errorf("the fence is %+v", fence)
	}
}

func TestBlockerCannotBeAccepted(t *testing.T) {
	f := newOldFleet(t, v1beta1.MigrationFinding{Level: "Blocker", Code: "NameTaken", Count: 1,
		Message: "Delete the other one."})
	f.plan().fails(t, "fix the Blockers: NameTaken").prints(t, "BLOCKERS", "Delete the other one.")
	f.run("run", "old-fleet", "--accept", "NameTaken").fails(t, `--accept "NameTaken": this is a Blocker`)
	f.run("run", "old-fleet").fails(t, "fix the Blockers: NameTaken")
	if stage := f.migration("old-fleet").Spec.Stage; stage != v1beta1.MigrationPlan {
		t.Errorf("the stage is %s", stage)
	}
	f.migrator.set(func(p *fakeMigrator) { p.findings = nil })
	f.plan("--flag=skip-eviction-after=1h").succeeds(t)
}

func TestRunShowsProblemsWhileWaiting(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t)
	f.migrator.set(func(p *fakeMigrator) { p.problems[v1beta1.MigrationAdopting] = "machine a: tags of\x1b[2J others" })
	f.runHooked(context.Background(), "Problem: machine a: tags of[2J others\n", func() {
		f.run("status", "old-fleet").succeeds(t).prints(t, "TROUBLES", "machine a: tags of[2J others")
		execute(t, "why", "mig/old-fleet", "-n", f.namespace).succeeds(t).prints(t, "machine a: tags of[2J others")
		f.run("commit", "old-fleet", "--yes").fails(t, `status.phase is "Adopting" and must be Adopted`)
		f.migrator.set(func(p *fakeMigrator) { clear(p.problems) })
	}, "run", "old-fleet").succeeds(t).prints(t, "Next: The migration waits for you.")
}

func TestMigrationContinuesAfterInterrupt(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t)
	f.migrator.set(func(p *fakeMigrator) { p.problems[v1beta1.MigrationCopying] = "slow" })
	f.runUntil("Problem: slow", "run", "old-fleet").fails(t, "interrupted: the migration continues",
		"machinist migrate status old-fleet", "To abort it: machinist migrate abort old-fleet")
	f.run("run", "old-fleet", "--timeout", "50ms").fails(t, "timed out after 50ms: Copying")
	f.migrator.set(func(p *fakeMigrator) {
		p.problems = map[v1beta1.MigrationPhase]string{v1beta1.MigrationRemoving: "slow"}
	})
	f.run("run", "old-fleet").succeeds(t)
	interrupted := f.runUntil("Problem: slow", "commit", "old-fleet", "--yes").fails(t, "interrupted: the migration continues")
	if f.migration("old-fleet").Status.Phase != v1beta1.MigrationRemoving {
		t.Fatal("the commit did not reach the phase Removing")
	}
	f.run("abort", "old-fleet").fails(t, "status.phase is Removing, past the point of no return")
	if strings.Contains(interrupted.out, "NOTES") {
		t.Error("the commit printed the plan")
	}
}

func TestRunRejectsChangedPlan(t *testing.T) {
	f := newOldFleet(t)
	f.plan().succeeds(t)
	f.runHooked(context.Background(), "Plan:", func() {
		f.migrator.set(func(p *fakeMigrator) { p.hash = "2" })
		m := f.migration("old-fleet")
		was := m.DeepCopy()
		m.Status.PlanHash = "hash2"
		f.must(f.api.Status().Patch(context.Background(), m, client.MergeFrom(was)))
	}, "run", "old-fleet").fails(t, "the plan of migration \"old-fleet\" changed in the meantime: nothing was done")
	if stage := f.migration("old-fleet").Spec.Stage; stage != v1beta1.MigrationPlan {
		t.Errorf("the stage is %s", stage)
	}
	f.run("run", "old-fleet", "--wait=false").succeeds(t)
	if hash := f.migration("old-fleet").Spec.PlanHash; hash != "hash2" {
		t.Errorf("the Migration has the plan %s", hash)
	}
}

func TestPlanAppliesFlags(t *testing.T) {
	f := newOldFleet(t)
	f.run("plan", "old-fleet").fails(t, "not found", "is required to create it")
	f.run("plan", "old-fleet", "--source", "gardener").fails(t, "--provider is required to create it")
	f.plan("--user-data", "bootstrap", "--flag", "--skip-eviction-after=2h", "--override",
		`a={"providerSpec":{"zone":"1"}}`, "--credentials", "env").succeeds(t)
	m := f.migration("old-fleet")
	if m.Spec.UserDataRef.Key != "userData" || m.Spec.ProcessFlags["skip-eviction-after"] != "2h" ||
		string(m.Spec.Overrides[0].Patch.Raw) != `{"providerSpec":{"zone":"1"}}` || m.Spec.CredentialsRef.Name != "env" {
		t.Errorf("the Migration is %+v", m.Spec)
	}
	f.plan("--override", `a={"providerSpec": {"zone": "1"}}`, "--user-data", "bootstrap:userData").succeeds(t)
	if again := f.migration("old-fleet"); again.Generation != m.Generation {
		t.Error("the same flags changed the Migration")
	}
	// A null removes a field of the class, so it must not get lost.
	const removal = `{"providerSpec":{"tags":null,"zone":"2"}}`
	f.plan("--override", "a="+removal).succeeds(t)
	if m = f.migration("old-fleet"); string(m.Spec.Overrides[0].Patch.Raw) != removal {
		t.Errorf("the override is %s, want %s", m.Spec.Overrides[0].Patch.Raw, removal)
	}
	f.plan("--exclude", "machinesets/windows", "--exclude", "MachineSet/windows", "--exclude", "machine/a.b").succeeds(t)
	if m = f.migration("old-fleet"); !slices.Equal(m.Spec.Exclude, []string{"MachineSet/windows", "Machine/a.b"}) {
		t.Errorf("the excluded objects are %s", m.Spec.Exclude)
	}
	f.plan("--exclude", "", "--override", "", "--flag", "", "--stop", "", "--lease", "", "--credentials", "",
		"--user-data", "").succeeds(t)
	if m = f.migration("old-fleet"); len(m.Spec.Exclude)+len(m.Spec.Overrides)+len(m.Spec.ProcessFlags)+
		len(m.Spec.Fence.Workloads)+len(m.Spec.Fence.Leases) > 0 || m.Spec.CredentialsRef != nil ||
		m.Spec.UserDataRef != nil {
		t.Errorf("empty values leave %+v", m.Spec)
	}
	f.plan("--flag", "skip-eviction-after=2h").succeeds(t)
	f.plan("--user-data", "bootstrap:other", "--stop", "deploy/a/b").succeeds(t)
	if m = f.migration("old-fleet"); m.Spec.UserDataRef.Key != "other" || len(m.Spec.Fence.Workloads) != 1 ||
		len(m.Spec.ProcessFlags) != 1 {
		t.Errorf("the Migration is %+v", m.Spec)
	}
	f.run("plan", "old-fleet", "--provider", "azure").fails(t, `--provider "azure": spec.provider of migration "old-fleet" is "fake"`)
	f.run("plan", "old-fleet", "--source", "gardener").fails(t, `--source "machine.sapcloud.io"`, `is "cluster.k8s.io"`)
	f.run("plan", "old-fleet", "--source-namespace", "x").fails(t, `--source-namespace "x"`, `is "`+f.namespace+`"`)
	f.plan("--source-namespace", f.namespace).succeeds(t)

	f.run("run", "old-fleet").succeeds(t)
	f.plan("--user-data", "bootstrap:other", "--stop", "deploy/a/b").succeeds(t)
	for flag, value := range map[string]string{"--user-data": "b", "--credentials": "c", "--flag": "a=b",
		"--override": "a={}", "--exclude": "machine/a"} {
		f.plan(flag, value).fails(t, flag+": spec.", "because spec.stage is Adopt", "machinist migrate abort old-fleet")
	}
	f.plan("--stop", "deploy/a/c").fails(t, "change these settings with machinist migrate run")
	f.run("run", "old-fleet", "--stop", "deploy/a/c").succeeds(t)
	if got := f.migration("old-fleet").Spec.Fence.Workloads; len(got) != 1 || got[0].Name != "c" {
		t.Errorf("the fence is %+v", got)
	}
}

func TestInvalidMigrationFlags(t *testing.T) {
	plan := func(args ...string) []string {
		return append([]string{"plan", "old-fleet", "--source", "gardener", "--provider", "p"}, args...)
	}
	f := &oldFleet{TB: t, api: env.Client(t), namespace: env.Namespace(t)}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"plan", "x", "--source", "karpenter", "--provider", "p"}, `--source "karpenter": must be one of cluster-api,`},
		{[]string{"plan", "x", "--source", "gardener", "--provider", "P"}, `--provider "P": a lowercase`},
		{[]string{"plan", "a.b", "--source", "gardener", "--provider", "p"}, `NAME "a.b": must be at most 40 characters`},
		{[]string{"plan", strings.Repeat("a", 41), "--source", "gardener", "--provider", "p"}, "at most 40 characters"},
		{[]string{"plan", "machine/x"}, `the type "machine" is not one of: migration`},
		{plan("--source-namespace", "a/b"), `--source-namespace "a/b"`},
		{plan("--credentials", "A"), `--credentials "A": a lowercase`},
		{plan("--user-data", "a:b/c"), `--user-data "a:b/c": the key "b/c" is not valid`},
		{plan("--flag", "x"), `--flag "x": write NAME=VALUE`},
		{plan("--flag", "x=1", "--flag", "x=2"), `--flag "x=2": the flag also has the value "1"`},
		{plan("--override", "x"), `--override "x": write CLASS=@FILE or CLASS=JSON`},
		{plan("--override", "x=[]"), `--override "x=[]": the value must be an object`},
		{plan("--override", "x={"), `--override "x={": the value is neither JSON nor YAML`},
		{plan("--override", "x=@/none"), `--override "x=@/none": open /none`},
		{plan("--override", "x={}", "--override", "x={}"), `class "x" already has a patch`},
		{plan("--stop", "daemonset/a/b"), `--stop "daemonset/a/b": write KIND/NAMESPACE/NAME`},
		{plan("--stop", "deployment/b"), `--stop "deployment/b": write KIND/NAMESPACE/NAME`},
		{plan("--stop", "deployment/B/b"), `--stop deployment/B/b: namespace "B"`},
		{plan("--exclude", "node/a"), `--exclude "node/a": write KIND/NAME with one of the kinds MachineDeployment,`},
		{plan("--exclude", "machine"), `--exclude machine: name "": the name is missing`},
		{plan("--lease", "a"), `--lease "a": write NAMESPACE/NAME`},
		{plan("--lease", "a/"), `--lease a/: name "": the name is missing`},
		{plan("--timeout", "-1s"), `--timeout -1s: must not be negative`},
		{plan("-o", "xml"), `--output "xml"`},
		{[]string{"status", "x", "-A"}, `--all-namespaces cannot be combined with the name "x"`},
		{[]string{"status", "x"}, `migration "x" not found in namespace`},
		{[]string{"abort", "x"}, `migration "x" not found in namespace`},
	} {
		f.run(c.args...).fails(t, c.want)
	}
	list := &v1beta1.MigrationList{}
	if f.must(f.api.List(context.Background(), list, client.InNamespace(f.namespace))); len(list.Items) != 0 {
		t.Errorf("there are %d Migrations", len(list.Items))
	}
}

func TestRejectionOfMigrationNamesFields(t *testing.T) {
	f := newOldFleet(t)
	f.plan("--flag", "x="+strings.Repeat("y", 1025)).fails(t, `the API server rejects migration "old-fleet":`,
		"spec.processFlags.x: ", "1024")
	f.plan().succeeds(t)
	m := f.migration("old-fleet")
	was := m.DeepCopy()
	m.Spec.Stage = v1beta1.MigrationAdopt
	err := explainRejection(m, f.api.Patch(context.Background(), m, client.MergeFrom(was)))
	outcome{failed: err}.fails(t, "spec.planHash: ", "planHash is required for this stage")
	f.run("run", "old-fleet", "--commit").succeeds(t)
	m = f.migration("old-fleet")
	was = m.DeepCopy()
	m.Spec.Stage = v1beta1.MigrationAbort
	err = explainRejection(m, f.api.Patch(context.Background(), m, client.MergeFrom(was)))
	outcome{failed: err}.fails(t, "spec.stage: ", "can no longer be aborted")
}

// The error names the first missing permission, and not the policy.
func TestRejectionByPolicyNamesMissingRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(v1beta1.GroupVersion.WithResource("migrations").GroupResource(), "old-fleet", nil)
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "ValidatingAdmissionPolicy 'a.machinist.dev' with " +
		"binding 'a.machinist.dev' denied request: spec.fence.leases[0]: you need the verb update"}}
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "old-fleet"}}
	want := `the API server rejects migration "old-fleet":
  spec.fence.leases[0]: you need the verb update`
	if err := explainRejection(m, explain(forbidden, "server")); err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestPlanReportsMissingMigrator(t *testing.T) {
	f := &oldFleet{TB: t, api: env.Client(t), namespace: env.Namespace(t)}
	f.run("plan", "old-fleet", "--source", "openshift", "--provider", "absent", "--timeout", "100ms").
		fails(t, `timed out after 100ms: Waiting for the migrator of provider absent`)
	got := f.runUntil("Waiting for the migrator", "plan", "old-fleet").
		fails(t, "interrupted: the migrator continues to plan")
	if !strings.Contains(got.err, "The process machinist-migrator-absent was not found") ||
		!strings.Contains(got.err, "migrator.enabled=true") {
		t.Errorf("the note is %q", got.err)
	}
	f.run("status", "old-fleet").succeeds(t).prints(t, "has not processed the last change", "The process machinist-migrator-absent was not found")
}

func TestStatusWatchEndsWithMigration(t *testing.T) {
	f := newOldFleet(t)
	f.run("status").succeeds(t).prints(t, "There are no Migrations in namespace "+f.namespace)
	f.plan().succeeds(t)
	f.run("status").succeeds(t).prints(t, "NAME        SOURCE", "old-fleet   cluster.k8s.io   Plan    Planning")
	execute(t, "migrate", "status", "-A").succeeds(t).prints(t, "NAMESPACE", f.namespace)
	f.runHooked(context.Background(), "The migration waits for you.", func() {
		f.run("run", "old-fleet", "--commit", "--wait=false").succeeds(t)
	}, "status", "old-fleet", "-w").succeeds(t).prints(t, "---", "Machinist alone manages the fleet")
	f.runUntil("Completed", "status", "-w").succeeds(t)
	var list migrate.List
	if err := json.Unmarshal([]byte(f.run("status", "-o", "json").out), &list); err != nil || len(list.Items) != 1 ||
		list.Items[0].Phase != v1beta1.MigrationCompleted {
		t.Errorf("%v: %+v", err, list)
	}
}

func TestMigrationCommandsReportMissingPermissions(t *testing.T) {
	f := newOldFleet(t, losses()...)
	f.plan().fails(t, "cannot start")
	grant(t, f.api, f.namespace, "auditor", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group},
		Resources: []string{"migrations"}, Verbs: []string{"get", "list", "watch"}})
	f.run("plan", "old-fleet", "--as", "auditor").fails(t, "accept the losses").
		prints(t, "NoUserData", "You may not list ConfigMaps in namespace "+f.namespace)
	f.run("plan", "old-fleet", "--as", "auditor", "-o", "yaml").fails(t, "the converted objects cannot be read", "You may not list")
	f.run("abort", "old-fleet", "--as", "auditor").fails(t, "you do not have the permission", "cannot patch")
	f.run("status", "old-fleet", "--as", "auditor").succeeds(t).prints(t, "You may not read leases")
	f.run("status", "--as", "stranger").fails(t, "you do not have the permission")
}

func TestCompletionOfMigrationNames(t *testing.T) {
	f := &oldFleet{TB: t, api: env.Client(t), namespace: env.Namespace(t)}
	f.run("plan", "old-fleet", "--source", "openshift", "--provider", "absent", "--timeout", "1ms").fails(t, "timed out")
	complete := func(words ...string) outcome {
		var out strings.Builder
		cmd := program(NewEnv(&out, io.Discard))
		cmd.SetArgs(append([]string{"__complete", "--namespace=" + f.namespace,
			"--kubeconfig=" + env.Kubeconfig()}, words...))
		err := cmd.ExecuteContext(context.Background())
		return outcome{out: out.String(), failed: err}.succeeds(t)
	}
	for _, verb := range []string{"plan", "run", "status", "commit", "abort"} {
		complete("migrate", verb, "old").prints(t, "old-fleet\n")
		if got := complete("migrate", verb, "new"); strings.Contains(got.out, "old-fleet") {
			t.Errorf("%s offers %q", verb, got.out)
		}
		if got := complete("migrate", verb, "old-fleet", ""); strings.Contains(got.out, "old-fleet") {
			t.Errorf("%s offers a second name: %q", verb, got.out)
		}
	}
	complete("why", "migration/").prints(t, "migration/old-fleet")
	complete("migrate", "plan", "x", "--source", "").prints(t, "gardener\n", "machines.k8s.io\n")
}
