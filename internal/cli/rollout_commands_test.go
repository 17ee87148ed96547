package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/rollout"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/test/env"
)

func TestRolloutStatusUndoAndRestart(t *testing.T) {
	f := newRolloutFleet(t, 3)
	before := f.machines()["a"]
	f.change(func(d *v1beta1.MachineDeployment) {
		d.Annotations = map[string]string{machinedeployment.AnnotationChangeCause: "the b's are\x1b[2J cheaper"}
		d.Spec.Template.Spec.ClassRef.Name = "b"
		d.Spec.Template.Spec.Node.Labels = map[string]string{"tier": "front"}
	})
	f.run("rollout", "status", "machinedeployment", "web", "--timeout", "1m").succeeds(t).
		prints(t, "Waiting for machinedeployment \"web\" to roll out: ", " of 3 updated, ",
			"machinedeployment \"web\" successfully rolled out\n")
	if got := f.machines(); len(got["a"]) != 0 || len(got["b"]) != 3 {
		t.Fatalf("after the rollout there are %v", got)
	}

	history := f.run("rollout", "history", "md/web").succeeds(t).prints(t, "REVISION", "2 (current)",
		"the b's are[2J cheaper")
	if lines := strings.Count(history.out, "\n"); lines != 3 {
		t.Errorf("the history of two revisions has %d lines:\n%s", lines, history.out)
	}
	f.run("rollout", "history", "md/web", "--revision", "1").succeeds(t).prints(t, "revision 1, set web-", "name: a",
		"spec.template.spec.classRef.name: b → a")
	f.run("rollout", "history", "md/web", "--revision", "2").succeeds(t).prints(t,
		"The current template of the deployment equals this revision.")
	f.run("rollout", "history", "md/web", "--revision", "7").fails(t, "no revision 7", "only 1, 2")

	generation := f.deployment().Generation
	for _, dryRun := range []string{"client", "server"} {
		f.run("rollout", "undo", "md/web", "--dry-run="+dryRun).succeeds(t).prints(t, "rolled back (to revision 1, set web-",
			"dry run)", "classRef.name: b → a")
	}
	if f.deployment().Generation != generation {
		t.Error("a dry run changed the deployment")
	}
	f.run("rollout", "undo", "md/web").succeeds(t).prints(t,
		"machinedeployment.machinist.dev/web rolled back (to revision 1, set web-")
	f.run("rollout", "status", "md/web").succeeds(t)
	d := f.deployment()
	if d.Spec.Template.Spec.Node.Labels["tier"] != "front" ||
		d.Annotations[machinedeployment.AnnotationChangeCause] != "" {
		t.Errorf("the undo must keep the Node's labels and remove the change cause: %v, %v",
			d.Spec.Template.Spec.Node.Labels, d.Annotations)
	}
	for key := range d.Spec.Template.ObjectMeta.Labels {
		if key != "app" {
			t.Errorf("the template got the label %s", key)
		}
	}
	f.run("rollout", "undo", "md/web", "--to-revision=3").succeeds(t).prints(t,
		"skipped rollback (the current template already matches revision 3)")

	f.run("rollout", "history", "md/web").succeeds(t).prints(t, "the b's are[2J cheaper", "3 (current)", "<none>")

	after := f.machines()["a"]
	if len(after) != 3 || slices.ContainsFunc(after, func(name string) bool { return slices.Contains(before, name) }) {
		t.Fatalf("after the undo there are %v, at first there were %v", after, before)
	}
	f.run("rollout", "restart", "md/web").succeeds(t).prints(t, "machinedeployment.machinist.dev/web restarted\n")
	f.run("rollout", "status", "md/web").succeeds(t)
	renewed := f.machines()["a"]
	if len(renewed) != 3 || slices.ContainsFunc(renewed, func(name string) bool { return slices.Contains(after, name) }) {
		t.Fatalf("after a restart there are %v, before there were %v", renewed, after)
	}
	// The revision before the restart has the same template, so "undo" skips it.
	f.run("rollout", "undo", "md/web", "--dry-run").succeeds(t).prints(t, "classRef.name: a → b")
	f.run("rollout", "undo", "md/web").succeeds(t)
	f.run("rollout", "status", "md/web").succeeds(t)
	if got := f.machines(); len(got["b"]) != 3 || len(got["a"]) != 0 {
		t.Errorf("after the undo there are %v", got)
	}
}

func TestRestartOfNewFleet(t *testing.T) {
	f := newRolloutFleet(t, 1)
	for range 2 {
		before := f.machines()["a"]
		f.run("rollout", "restart", "md/web").succeeds(t)
		f.run("rollout", "restart", "md/web").succeeds(t)
		f.run("rollout", "status", "md/web").succeeds(t)
		if after := f.machines()["a"]; len(after) != 1 || slices.Equal(after, before) {
			t.Fatalf("before the restart there was %v, now %v", before, after)
		}
	}
}

func TestRolloutPauseAndResume(t *testing.T) {
	f := newRolloutFleet(t, 2)
	f.run("rollout", "resume", "md/web").fails(t, "machinedeployment \"web\" is not paused")
	f.run("rollout", "pause", "md/web").succeeds(t).prints(t, "machinedeployment.machinist.dev/web paused\n")
	f.run("rollout", "pause", "md/web").fails(t, "machinedeployment \"web\" is already paused")
	f.roll("b")
	f.run("rollout", "undo", "md/web").fails(t, "cannot roll back machinedeployment \"web\" while it is paused", "rollout resume")
	f.run("rollout", "restart", "md/web").fails(t, "cannot restart machinedeployment \"web\" while it is paused", "rollout resume")
	f.await("the pause", func(d *v1beta1.MachineDeployment) bool { return d.Status.ObservedGeneration == d.Generation })
	f.run("rollout", "status", "md/web", "--watch=false").succeeds(t).prints(t,
		"Waiting for machinedeployment \"web\" to be resumed")
	f.run("rollout", "status", "md/web", "--timeout", "300ms").fails(t, "timed out after 300ms", "to be resumed").
		prints(t, "Waiting for machinedeployment \"web\" to be resumed")
	f.run("rollout", "resume", "md/web", "-o", "yaml").succeeds(t).prints(t, "kind: RolloutResult", "done: resumed",
		"changed: true")
	f.run("rollout", "status", "md/web").succeeds(t)
	if got := f.machines(); len(got["b"]) != 2 {
		t.Errorf("after the resume there are %v", got)
	}
}

func TestRolloutPromote(t *testing.T) {
	f := newRolloutFleet(t, 3)
	reason := func(reason string) func(*v1beta1.MachineDeployment) bool {
		return func(d *v1beta1.MachineDeployment) bool {
			c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing)
			return c != nil && c.Reason == reason && d.Status.ObservedGeneration == d.Generation
		}
	}
	f.run("rollout", "promote", "md/web").fails(t, "cannot promote machinedeployment \"web\"", "pauseAfter is not set")
	f.change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{PauseAfter: &v1beta1.RolloutPause{Machines: 1}, Partition: 1}
	})
	f.await("the strategy", reason(v1beta1.ReasonNewMachineSetAvailable))
	f.run("rollout", "promote", "md/web").fails(t, "the rollout of revision 1 is complete")
	f.roll("b")
	f.await("the pause", reason(v1beta1.ReasonWaitingForPromotion))
	f.run("rollout", "status", "md/web", "--watch=false").succeeds(t).prints(t,
		"Waiting for machinedeployment \"web\" to roll out: 1 of 3 updated, 2 old left, 3 available: "+
			"PauseAfter stops the rollout, with 2 machines of an old revision left; "+
			"to continue now, run machinist rollout promote machinedeployment/web.\n")
	f.run("rollout", "promote", "md/web").succeeds(t).prints(t,
		"machinedeployment.machinist.dev/web promoted (revision 2)\n")
	f.await("the partition", reason(v1beta1.ReasonPartitionReached))
	f.run("rollout", "status", "md/web").succeeds(t).prints(t,
		"machinedeployment \"web\" rolled out up to its partition: 2 of 3 updated, 1 old left, 3 available: "+
			"Partition keeps 1 machine on old revisions; to update more machines, lower spec.strategy.rollingUpdate.partition.\n")
	f.run("rollout", "promote", "md/web").fails(t, "the rollout has stopped at its partition")
	if got := f.machines(); len(got["a"]) != 1 || len(got["b"]) != 2 {
		t.Errorf("at the partition there are %v", got)
	}
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.RollingUpdate.Partition = 0 })
	f.run("rollout", "status", "md/web").succeeds(t).prints(t, "machinedeployment \"web\" successfully rolled out\n")
}

func TestStatusOfFailedRolloutSuggestsUndo(t *testing.T) {
	f := newRolloutFleet(t, 2)
	f.provider.set(f.provider.broken, "b", true)
	f.roll("b")
	f.run("rollout", "status", "md/web").fails(t, "failed to roll out (RevisionFailing)", "no such size",
		"machinist rollout undo machinedeployment/web")
	var progress rollout.Progress
	view := f.run("rollout", "status", "md/web", "-o", "json").fails(t, "RevisionFailing")
	if err := json.Unmarshal([]byte(view.out), &progress); err != nil || progress.State != rollout.StateFailed ||
		progress.Kind != "RolloutStatus" || len(progress.FailedMachines) == 0 {
		t.Errorf("%v: %s", err, view.out)
	}
	f.run("rollout", "status", "md/web", "--revision", "1").fails(t, "the current revision is 2, not 1")
	f.run("rollout", "undo", "md/web").succeeds(t)
	f.run("rollout", "status", "md/web").succeeds(t)
	if got := f.machines(); len(got["a"]) != 2 || len(got["b"]) != 0 {
		t.Errorf("after the undo there are %v", got)
	}
}

func TestUndoRejectsDeletedClass(t *testing.T) {
	f := newRolloutFleet(t, 1)
	f.roll("b")
	f.run("rollout", "status", "md/web").succeeds(t)
	f.must(f.api.Delete(context.Background(),
		&v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "a"}}))
	generation := f.deployment().Generation
	f.run("rollout", "undo", "md/web").fails(t, "class a of revision 1 no longer exists", "--force")
	if f.deployment().Generation != generation {
		t.Fatal("the deployment was changed")
	}
	undone := f.run("rollout", "undo", "md/web", "--force").succeeds(t)
	if !strings.Contains(undone.err, "Warning: class a of revision 1 no longer exists") ||
		f.deployment().Generation == generation {
		t.Errorf("with --force: %+v", undone)
	}
}

func TestUndoWithoutHistory(t *testing.T) {
	f := newRolloutFleet(t, 1)
	f.run("rollout", "undo", "md/web").fails(t, "no revision to go back to")
	f.run("rollout", "undo", "md/web", "--to-revision=5").fails(t, "no revision 5")
	f.run("rollout", "undo", "md/web", "--to-revision=-1").fails(t, "is not the number of a revision")
	f.run("rollout", "undo", "md/web", "--dry-run=maybe").fails(t, `--dry-run="maybe": must be none, client or server`)
}

func TestEditRejectsConcurrentChangeOfSpec(t *testing.T) {
	f := newRolloutFleet(t, 1)
	e := NewEnv(&strings.Builder{}, &strings.Builder{})
	path := env.Kubeconfig()
	e.rules.ExplicitPath, e.overrides.Context.Namespace = path, f.namespace
	c, err := e.Connect()
	f.must(err)
	read := f.deployment()
	f.roll("b")
	err = c.edit(context.Background(), read, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef.Name = "c"
	})
	if err == nil || !strings.Contains(err.Error(), "changed by another client in the meantime") ||
		f.deployment().Spec.Template.Spec.ClassRef.Name != "b" {
		t.Errorf("error %v, class %s", err, f.deployment().Spec.Template.Spec.ClassRef.Name)
	}
	// The edit also succeeds if another client has changed the metadata of the object in the meantime.
	f.run("rollout", "status", "md/web").succeeds(t)
	read = f.deployment()
	f.change(func(d *v1beta1.MachineDeployment) { d.Annotations = map[string]string{"example.com/note": "x"} })
	if err = c.edit(context.Background(), read, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef.Name = "c"
	}); err != nil {
		t.Error(err)
	}
	if d := f.deployment(); d.Spec.Template.Spec.ClassRef.Name != "c" || d.Annotations["example.com/note"] != "x" {
		t.Errorf("class %s, annotations %v", d.Spec.Template.Spec.ClassRef.Name, d.Annotations)
	}
}

func TestStatusFailsWhenDeploymentIsDeleted(t *testing.T) {
	f := newRolloutFleet(t, 1)
	f.provider.set(f.provider.blocked, "b", true)
	f.roll("b")
	ended := make(chan outcome)
	go func() { ended <- f.run("rollout", "status", "md/web") }()
	f.await("the rollout to wait", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.UpdatedReplicas == 1 && d.Status.Replicas == 2
	})
	f.must(f.api.Delete(context.Background(), f.deployment()))
	select {
	case o := <-ended:
		// The deployment may have been deleted before the command could read it.
		if o.failed == nil || !strings.Contains(o.failed.Error(), "deleted in the meantime") &&
			!strings.Contains(o.failed.Error(), "not found in namespace") {
			t.Errorf("the command ended with %v\n%s", o.failed, o.out)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command still waits")
	}
}
