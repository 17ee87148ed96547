package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	poll "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/test/env"
)

// manifest returns a manifest of the deployment web. Additional lines become fields of the spec.
func manifest(class string, more string) string {
	return fmt.Sprintf(`apiVersion: machinist.dev/v1beta1
kind: MachineDeployment
metadata:
  name: web
spec:
  replicas: 3
%s  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      classRef: {name: %s}
`, more, class)
}

func (f *rolloutFleet) plan(text string, args ...string) outcome {
	f.Helper()
	return executeAt(f, env.Kubeconfig(), text, append([]string{"plan", "-f", "-", "-n", f.namespace},
		args...)...)
}

func onlyPlan(t testing.TB, o outcome) *preview.Plan {
	t.Helper()
	var view plans
	if err := json.Unmarshal([]byte(o.succeeds(t).out), &view); err != nil || len(view.Items) != 1 ||
		view.Kind != "RolloutPlans" {
		t.Fatalf("%v: %s", err, o.out)
	}
	return view.Items[0]
}

func TestPlanMatchesRolloutAndChangesNothing(t *testing.T) {
	f := newRolloutFleet(t, 3)
	before := f.machines()["a"]
	version := f.deployment().ResourceVersion
	p := onlyPlan(t, f.plan(manifest("b", ""), "-o", "json"))
	if f.deployment().ResourceVersion != version || len(f.machines()["a"]) != 3 {
		t.Fatal("a plan changed something")
	}
	if len(p.Machines.Deleted) != 3 || p.Machines.Created != 3 || p.Least != 3 ||
		len(p.Blockers) != 0 {
		t.Errorf("the plan is %+v", p)
	}
	if strings.Join(p.Machines.Deleted, " ") != strings.Join(before, " ") {
		t.Errorf("the plan deletes %v, want %v", p.Machines.Deleted, before)
	}
	maxPlanned := int32(0)
	for _, w := range p.Waves {
		maxPlanned = max(maxPlanned, w.Live)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	seen := make(chan int32)
	go func() { seen <- maxLive(ctx, f) }()
	f.roll("b")
	f.run("rollout", "status", "md/web").succeeds(t)
	stop()
	if got := <-seen; got > maxPlanned {
		t.Errorf("there were %d machines at a time, but the plan has at most %d", got, maxPlanned)
	}
	f.plan(manifest("b", "")).succeeds(t).prints(t, "Nothing would change.")
	f.plan(manifest("b", "  paused: true\n")).succeeds(t).prints(t, "spec.paused: + true",
		"No machine would be created, replaced or deleted.")
}

// maxLive watches the machines until ctx ends. maxLive counts the machines that are not being deleted, and returns
// the highest count during the watch.
func maxLive(ctx context.Context, f *rolloutFleet) (most int32) {
	live := map[string]bool{}
	list := &v1beta1.MachineList{}
	if err := f.api.List(ctx, list, client.InNamespace(f.namespace)); err != nil {
		return 0
	}
	for _, m := range list.Items {
		live[m.Name] = true
	}
	events, err := f.api.Watch(ctx, list, &client.ListOptions{Namespace: f.namespace,
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return 0
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		if m, ok := e.Object.(*v1beta1.Machine); ok {
			if m.DeletionTimestamp.IsZero() {
				live[m.Name] = true
			} else {
				delete(live, m.Name)
			}
			most = max(most, int32(len(live)))
		}
	}
	return most
}

func TestPlanMatchesKubectlApply(t *testing.T) {
	f := newRolloutFleet(t, 1)
	for name, how := range map[string][]string{"by-client": {"apply"}, "by-server": {"apply", "--server-side"}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file.yaml")
			written := func(class, more string) string { return strings.ReplaceAll(manifest(class, more), "web", name) }
			apply := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(env.ControlPlane().Kubectl(), append(how, "-f", file, "-n", f.namespace, "--kubeconfig",
					env.Kubeconfig())...)
				cmd.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("kubectl: %v\n%s", err, out)
				}
			}
			read := func() *v1beta1.MachineDeployment {
				t.Helper()
				d := &v1beta1.MachineDeployment{}
				f.must(f.api.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: name}, d))
				return d
			}
			apply(written("a", "  minReadySeconds: 1\n"))
			// kubectl apply removes a field that the file no longer contains, but not the fields of other clients.
			d := read()
			was := d.DeepCopy()
			d.Spec.RevisionHistoryLimit = new(int32)
			f.must(f.api.Patch(context.Background(), d, client.MergeFrom(was)))
			p := onlyPlan(t, f.plan(written("b", ""), "-o", "json"))
			apply(written("b", ""))
			if d := read(); d.Spec.MinReadySeconds != 0 || *d.Spec.RevisionHistoryLimit != 0 {
				t.Fatalf("kubectl changed the spec to %+v", d.Spec)
			}
			var got []string
			for _, c := range p.Changes {
				got = append(got, c.String())
			}
			if want := "spec.minReadySeconds: 1 removed; spec.template.spec.classRef.name: a → b"; strings.Join(got,
				"; ") != want {
				t.Errorf("changes %q, want %q", got, want)
			}
		})
	}
}

func TestPlanOfNewDeployment(t *testing.T) {
	f := newRolloutFleet(t, 1)
	text := strings.ReplaceAll(manifest("a", ""), "web", "new")
	f.plan(text).succeeds(t).prints(t, "machinedeployment/new in namespace "+
		f.namespace, "The deployment is new: 3 machines would be created.")
	f.plan(strings.ReplaceAll(text, "name: a", "name: nosuch")).succeeds(t).prints(t, "The class nosuch does not exist")
	class := "kind: MachineClass\napiVersion: machinist.dev/v1beta1\nmetadata: {name: nosuch}\n---\n"
	both := f.plan(class + strings.ReplaceAll(text, "name: a", "name: nosuch") + "---\n" + manifest("b", "")).succeeds(t)
	both.prints(t, "machinedeployment/new in", "machinedeployment/web in")
	if strings.Contains(both.out, "does not exist") {
		t.Errorf("the class of the same file was not found:\n%s", both.out)
	}
}

func TestPlanRejectsInvalidFiles(t *testing.T) {
	f := newRolloutFleet(t, 1)
	f.plan("").fails(t, "no MachineDeployment found")
	f.plan("kind: Pod\napiVersion: v1\n").fails(t, "no MachineDeployment found")
	f.plan("just words").fails(t, "standard input: document 1")
	f.plan("kind: MachineDeployment\n").fails(t, "apiVersion or kind is not set")
	f.plan("kind: MachineDeployment\napiVersion: machinist.dev/v1alpha1\nmetadata: {name: web}\n").fails(t, "v1alpha1",
		"is not supported: use machinist.dev/v1beta1")
	f.plan("kind: MachineDeployment\napiVersion: machinist.dev/v1beta1\n").fails(t, "metadata.name is not set")
	f.plan(strings.ReplaceAll(manifest("a", ""), "name: web", "name: web\n  namespace: other")).fails(t,
		`namespace of machinedeployment "web" is "other"`)
	f.plan(manifest("a", "  replicaz: 4\n")).fails(t, "replicaz")
	f.plan(strings.ReplaceAll(manifest("a", ""), "replicas: 3", "replicas: -3")).fails(t, "spec.replicas")
	f.plan(strings.ReplaceAll(manifest("a", ""), "name: web", "name: web\n  resourceVersion: \"1\"")).fails(t,
		"remove metadata.resourceVersion from the file")
	f.plan(strings.ReplaceAll(manifest("a", ""), "{app: web}", "{app: other}")).fails(t, "selector is immutable")
	f.run("plan", "-f", filepath.Join(t.TempDir(), "nothing.yaml")).fails(t, "nothing.yaml", "no such file")
	f.run("plan", "-f", "https://example.com/web.yaml").fails(t, "URLs are not supported")
	f.run("plan").fails(t, `"filename" not set`)
}

func TestPlanNamesInvalidFields(t *testing.T) {
	f := newRolloutFleet(t, 1)
	web := manifest("a", "  replicaz: 4\n  strategy: {type: Rollin}\n")
	long := strings.ReplaceAll(manifest("a", ""), "spec:\n  replicas: 3", "  annotations: {note: "+
		strings.Repeat("long", 2000)+"}\nspec:\n  replicaz: 4")
	for name, test := range map[string]struct {
		text  string
		lines []string
	}{
		"unknown field": {manifest("a", "  replicaz: 4\n"),
			[]string{`spec.replicaz: 4: unknown field`}},
		"unknown field in a long document": {long, []string{`spec.replicaz: 4: unknown field`}},
		"two unknown fields and an unsupported value": {strings.ReplaceAll(web, "labels: {app: web}",
			"labels: {app: web}\n      lables: {}"), []string{`spec.replicaz: 4: unknown field`,
			`spec.template.metadata.lables: {}: unknown field`}},
		"unsupported value": {manifest("a", "  strategy: {type: Rollin}\n"),
			[]string{`spec.strategy.type: Unsupported value: "Rollin": supported values: `}},
		"value of another type": {strings.ReplaceAll(manifest("a", ""), "replicas: 3", "replicas: three"),
			[]string{`spec.replicas: Invalid value: "three": must be of type integer`}},
		"incomplete version": {manifest("a", "") + "      version: v1.36\n",
			[]string{`spec.template.spec.version: Invalid value: `, `such as v1.36.3`}},
	} {
		for kind, text := range map[string]string{"changed": test.text, "new": strings.ReplaceAll(test.text, "name: web",
			"name: new")} {
			t.Run(name+", "+kind, func(t *testing.T) {
				message := f.plan(text).fails(t, append(test.lines, "the API server would reject the document:\n")...).failed.Error()
				if len(message) > 700 || strings.Contains(message, `\"`) || strings.Contains(message, "last-applied") {
					t.Errorf("the message contains too much:\n%s", message)
				}
			})
		}
	}
}

func TestPlanOfFolder(t *testing.T) {
	f := newRolloutFleet(t, 1)
	folder := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) outcome {
		t.Helper()
		return f.run(append([]string{"plan", "-f", folder}, args...)...)
	}
	put("readme.txt", "no manifest")
	run().fails(t, folder, "the folder contains no file with the extension .json, .yaml, .yml")
	put("1-classes.yaml", "kind: MachineClass\napiVersion: machinist.dev/v1beta1\nmetadata: {name: made}\n")
	run().fails(t, folder, "no MachineDeployment found")
	put("2-web.yml", strings.ReplaceAll(manifest("made", ""), "web", "one"))
	put("3.json", `{"kind":"List","apiVersion":"v1","items":[]}`)
	put("deeper/4.yaml", strings.ReplaceAll(manifest("a", ""), "web", "two"))
	flat := run().succeeds(t)
	flat.prints(t, "machinedeployment/one in")
	if strings.Contains(flat.out, "two") || strings.Contains(flat.out, "does not exist") {
		t.Errorf("a subfolder was read, or the class was not:\n%s", flat.out)
	}
	run("-R").succeeds(t).prints(t, "machinedeployment/one in", "machinedeployment/two in")
	put("5.yaml", "just words")
	run().fails(t, "5.yaml: document 1")
}

// Without the dry run there is no plan, because the file lacks the defaults and is not validated.
func TestPlanNeedsPermissionForDryRun(t *testing.T) {
	f := newRolloutFleet(t, 2)
	reads := rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group},
		Resources: []string{"machinedeployments", "machinesets", "machines"}, Verbs: []string{"get", "list", "watch"}}
	grant(t, f.api, f.namespace, "reader", reads)
	f.plan(manifest("b", ""), "--as", "reader").fails(t, "rejected the dry run that the plan needs",
		`cannot patch resource "machinedeployments"`)
	f.plan(strings.ReplaceAll(manifest("a", ""), "web", "new"), "--as", "reader").fails(t,
		`cannot create resource "machinedeployments"`)

	changes := rbacv1.PolicyRule{APIGroups: reads.APIGroups, Resources: []string{"machinedeployments"},
		Verbs: []string{"patch"}}
	grant(t, f.api, f.namespace, "author", reads, changes)
	f.plan(manifest("b", ""), "--as", "author").succeeds(t).prints(t,
		"2 machines would be replaced. 1 machine would be created.", "The existence of the class b could not be checked.")
}

// grant gives rights to a user, and waits until the API server applies them.
func grant(t testing.TB, api client.Client, namespace, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}},
	} {
		if err := api.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				spec := authorizationv1.SubjectAccessReviewSpec{User: user,
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb,
						Group: rule.APIGroups[0], Resource: resource}}
				if err := poll.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, env.Patience, true,
					func(ctx context.Context) (bool, error) {
						review := &authorizationv1.SubjectAccessReview{Spec: spec}
						err := api.Create(ctx, review)
						return review.Status.Allowed, err
					}); err != nil {
					t.Fatalf("user %s may not %s %s: %v", user, verb, resource, err)
				}
			}
		}
	}
}
