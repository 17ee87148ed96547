package process

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// grant grants rights to a user of the control cluster.
func grant(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	c := clientset(t, planes.control.Config()).RbacV1()
	role, err := c.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func rule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resources, ","),
		Verbs: strings.Split(verbs, ",")}
}

// An administrator who installs the process sees one missing right after another, without a restart.
//
// Rule: missing-right-is-named.
func TestAProcessIsNotReadyAndNamesAMissingRight(t *testing.T) {
	user, err := planes.control.UserConfig("half-installed")
	if err != nil {
		t.Fatal(err)
	}
	file := newKubeconfigFile(t)
	file.withCertificate(planes.control, user)
	c := testConfig(t)
	c.ControlKubeconfig = file.path
	p := start(t, c, testOptions(), nil)
	// Several rights are missing at once, and which one the process detects first is random.
	lacks := func(missing string) {
		t.Helper()
		p.logs.contain(t, `"This process lacks a right" "cluster"="control" "right"="`+missing+`" "user"="half-installed"`)
		p.probeReports("/readyz", http.StatusServiceUnavailable, "[-]control: this process may not ")
	}
	lacks("get namespaces in namespace kube-system")
	lacks("list machineclasses.machinist.dev")
	grant(t, "half-installed", rule("", "namespaces", "get"))
	lacks("get configmaps in namespace " + c.LeaderElectionNamespace)
	grant(t, "half-installed", rule("", "configmaps", "get,create,update"))
	p.logs.contain(t, "Secret (metadata); this process may not list ")
	grant(t, "half-installed", rule("machinist.dev", "machineclasses", "list,watch"), rule("", "secrets", "list,watch"))
	leases := "get leases.coordination.k8s.io in namespace " + c.LeaderElectionNamespace
	lacks(leases)
	p.probeReports("/readyz", http.StatusServiceUnavailable, "[-]control: this process may not "+leases+"\n")
	grant(t, "half-installed", rule("coordination.k8s.io", "leases", "get,create,update"))
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "[+]control ok")
	p.logs.contain(t, `"This process now has a right that it lacked" "cluster"="control" "right"="get leases.coordination.k8s.io`)
}

// Rule missing-right-is-named: a right that is missing in the target cluster stops no work that does not need it.
func TestAMissingRightInTheTargetDoesNotChangeReadiness(t *testing.T) {
	stranger, err := planes.target.UserConfig("target-stranger")
	if err != nil {
		t.Fatal(err)
	}
	file := newKubeconfigFile(t)
	file.withCertificate(planes.target, stranger)
	c := watchful(testConfig(t))
	c.TargetKubeconfig = file.path
	p := start(t, c, testOptions(), nil)
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "target: reachable, but this process may not list nodes\n")
	p.logs.contain(t, `"This process lacks a right" "cluster"="target" "right"="list nodes" "user"="target-stranger"`)
}

func TestParseDenied(t *testing.T) {
	for _, test := range []struct {
		answer, want, name, user string
	}{
		{`{"message":"nodes is forbidden: User \"a\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"}`,
			"list nodes", "", "a"},
		{`{"message":"leases.coordination.k8s.io \"m\" is forbidden: User \"system:serviceaccount:n:m\" cannot update resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"n\": RBAC: role \"x\" not found"}`,
			"update leases.coordination.k8s.io in namespace n", "m", "system:serviceaccount:n:m"},
		{"k8s\x00\x0a\x0c\x12z" + `machines.machinist.dev "w-1" is forbidden: User "b" cannot patch resource "machines/status" in API group "machinist.dev" in the namespace "default"`,
			"patch machines/status.machinist.dev in namespace default", "w-1", "b"},
		{`{"message":"machines.machinist.dev \"w\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no"}`, "", "", ""},
		{`{"message":"pods \"p\" is forbidden: exceeded quota: q"}`, "", "", ""},
		{`{"message":"forbidden: User \"a\" cannot get path \"/readyz\""}`, "", "", ""},
		{"", "", "", ""},
	} {
		missing, user, ok := parseDenied([]byte(test.answer))
		if !ok {
			missing = right{}
		}
		if ok != (test.want != "") || ok && missing.String() != test.want || missing.name != test.name || user != test.user {
			t.Errorf("parseDenied(%q): right %q, object %q, user %q, ok %t", test.answer, missing, missing.name, user, ok)
		}
	}
}

// granted allows everything except access to the resource denies.
type granted struct {
	authorizationclient.SelfSubjectAccessReviewInterface
	denies string
	asked  int
}

func (g *granted) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview,
	_ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	g.asked++
	review.Status.Allowed = review.Spec.ResourceAttributes.Resource != g.denies
	return review, nil
}

// Rule: missing-right-is-named.
func TestAMissingRightIsLoggedRepeatedlyUntilItIsGranted(t *testing.T) {
	lines, now := &logs{}, time.Now()
	d := newDenials("control", funcr.New(lines.add, funcr.Options{}))
	d.now = func() time.Time { return now }
	nodes, leases := right{verb: "list", resource: "nodes"}, right{verb: "get", resource: "leases", name: "a"}
	for range 100 {
		d.add(nodes, "u")
		d.add(leases, "u")
		leases.name += "a"
	}
	if n := strings.Count(lines.String(), "lacks a right"); n != 2 || len(d.order) != 2 {
		t.Errorf("%d lines, %d rights:\n%s", n, len(d.order), lines)
	}
	cluster := &granted{denies: "leases"}
	all := func(right) bool { return true }
	if r, found := d.firstMissing(t.Context(), cluster, all); !found || r != nodes || cluster.asked != 0 {
		t.Errorf("got %s %t after %d questions", r, found, cluster.asked)
	}
	now = now.Add(deniedRecheck)
	for range 10 {
		if r, found := d.firstMissing(t.Context(), cluster, all); !found || r.resource != "leases" || cluster.asked != 2 {
			t.Errorf("got %s %t after %d questions", r, found, cluster.asked)
		}
	}
	other := func(r right) bool { return r.resource != "leases" }
	if _, found := d.firstMissing(t.Context(), cluster, other); found {
		t.Error("found a right that must not count")
	}
	now = now.Add(deniedReminder)
	d.add(leases, "u")
	if n := strings.Count(lines.String(), "still lacks a right"); n != 1 {
		t.Errorf("%d reminders", n)
	}
	for i := range 10 * maxDenied {
		d.add(right{verb: "get", resource: strings.Repeat("x", i+1)}, "u")
	}
	if len(d.order) != maxDenied || len(d.known) != maxDenied {
		t.Errorf("%d and %d rights are remembered", len(d.order), len(d.known))
	}
}

func TestEssentialRights(t *testing.T) {
	for r, want := range map[right]bool{
		{verb: "create", resource: "events"}:                         false,
		{verb: "get", resource: "secrets"}:                           false,
		{verb: "list", resource: "secrets"}:                          true,
		{verb: "patch", resource: "machines", subresource: "status"}: true,
	} {
		if essential(r) != want {
			t.Errorf("%s: %t", r, !want)
		}
	}
}
