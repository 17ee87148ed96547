package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

var rolloutCommands = []string{"status", "history", "undo", "restart", "pause", "resume"}

func TestErrorsOfRolloutCommands(t *testing.T) {
	namespace := env.Namespace(t)
	for _, command := range rolloutCommands {
		run := func(args ...string) outcome {
			t.Helper()
			return execute(t, append([]string{"rollout", command, "-n", namespace}, args...)...)
		}
		run("md/nosuch").fails(t, `machinedeployment "nosuch" not found in namespace "`+namespace+`"`)
		run("machineset/web").fails(t, `the type "machineset" is not one of: machinedeployment`)
		run("deployments.apps", "web").fails(t, `the type "deployments.apps" is not one of`)
		run("md/").fails(t, "the name is missing")
		run().fails(t, "accepts between 1 and 2 arg(s)")
		run("md/web", "-o", "xml").fails(t, `--output "xml": must be json, yaml or wide`)
		run("md/web", "--nosuch").fails(t, "unknown flag: --nosuch")
		run("md/web", "--as", "stranger").fails(t, "you do not have the permission",
			`User "stranger" cannot get resource "machinedeployments"`)
	}
	execute(t, "rollout", "status", "md/web", "--timeout", "soon").fails(t, "--timeout")
	execute(t, "rollout", "status", "md/web", "--timeout", "-1s").fails(t, "must not be negative")
	execute(t, "rollout", "sideways").fails(t, "unknown command")
}

func TestCommandsReportUnusableCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(manifest("a", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for _, command := range rolloutCommands {
		all = append(all, []string{"rollout", command, "md/web"})
	}
	all = append(all, []string{"plan", "-f", file})
	strange := inmemory.WithoutMachinist(t)
	for _, args := range all {
		executeAt(t, strange, "", args...).fails(t, "does not serve Machinist's kinds",
			"the CRDs are installed")
		execute(t, append(args, "--server", "https://127.0.0.1:1")...).fails(t,
			"the cluster at https://127.0.0.1:1 does not answer")
		executeAt(t, filepath.Join(t.TempDir(), "nothing"), "", args...).fails(t, "kubeconfig")
		execute(t, append(args, "-o", "csv")...).fails(t, `--output "csv"`)
	}
	execute(t, "plan", "-f", file, "--as", "stranger").fails(t, "you do not have the permission")
}

func TestStatusNeedsPermissionToWatch(t *testing.T) {
	f := newRolloutFleet(t, 1)
	f.provider.set(f.provider.blocked, "b", true)
	f.roll("b")
	f.await("the rollout to wait", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.UpdatedReplicas == 1 && d.Status.Replicas == 2
	})
	grant(t, f.api, f.namespace, "looker", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group},
		Resources: []string{"machinedeployments"}, Verbs: []string{"get"}})
	f.run("rollout", "status", "md/web", "--as", "looker").fails(t, "waiting needs the permission to watch", "--watch=false")
	f.run("rollout", "status", "md/web", "--as", "looker", "--watch=false").succeeds(t).prints(t,
		"1 of 1 updated, 1 old left")
	f.run("rollout", "history", "md/web", "--as", "looker").fails(t, "list the sets", "you do not have the permission")
	f.run("rollout", "pause", "md/web", "--as", "looker").fails(t, "you do not have the permission", "cannot patch")
}

func TestStatusContinuesAfterAPIServerRestart(t *testing.T) {
	// A restart of the shared control plane would break the watches of other tests.
	cp, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	c := installAPI(t, cp)
	ctx := context.Background()
	three := int32(3)
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: &three,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "a"}},
			},
		},
	}
	if err := c.Create(ctx, d); err != nil {
		t.Fatal(err)
	}
	stderr := &signal{words: "Trying again", written: make(chan struct{})}
	var out strings.Builder
	e := NewEnv(&out, stderr)
	ended := make(chan error)
	go func() {
		cmd := program(e)
		cmd.SetArgs([]string{"rollout", "status", "md/web", "--kubeconfig", cp.Kubeconfig(), "--timeout", "2m"})
		ended <- cmd.ExecuteContext(ctx)
	}()
	// Stop the API server only after the command has started its watch. Otherwise the command would fail.
	if err := awaitWatch(ctx, cp); err != nil {
		t.Fatal(err)
	}
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stderr.written:
	case err := <-ended:
		t.Fatalf("the command ended when the API server stopped: %v", err)
	case <-time.After(env.Patience):
		t.Fatal("the command did not report that the API server is unreachable")
	}
	if err := cp.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	for {
		if err := c.Get(ctx, keyOf(d), d); err != nil {
			t.Fatal(err)
		}
		d.Status = v1beta1.MachineDeploymentStatus{ObservedGeneration: d.Generation, Replicas: 3, UpdatedReplicas: 3,
			ReadyReplicas: 3, AvailableReplicas: 3,
			CurrentRevision: 1, Conditions: []metav1.Condition{{Type: v1beta1.ConditionRollingOut, Status: metav1.ConditionFalse,
				Reason: v1beta1.ReasonRolloutComplete, Message: "Done.", LastTransitionTime: metav1.Now()}}}
		if err := c.Status().Update(ctx, d); err == nil {
			break
		}
	}
	if err := <-ended; err != nil || !strings.Contains(out.String(), "successfully rolled out") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
