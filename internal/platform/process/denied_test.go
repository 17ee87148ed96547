package process

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

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

// When an administrator grants a missing right, the process reports the next missing right without a restart.
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
	// Several rights are missing. The right that the process detects first is random.
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

// Rule missing-right-is-named: without a right in the target cluster, work that does not need the right continues.
func TestAMissingRightInTheTargetDoesNotChangeReadiness(t *testing.T) {
	stranger, err := planes.target.UserConfig("target-stranger")
	if err != nil {
		t.Fatal(err)
	}
	file := newKubeconfigFile(t)
	file.withCertificate(planes.target, stranger)
	c := withFrequentChecks(testConfig(t))
	c.TargetKubeconfig = file.path
	p := start(t, c, testOptions(), nil)
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "target: reachable, but this process may not list nodes\n")
	p.logs.contain(t, `"This process lacks a right" "cluster"="target" "right"="list nodes" "user"="target-stranger"`)
}

func TestTheRightOfARequest(t *testing.T) {
	for _, test := range []struct{ method, url, want, name string }{
		{"GET", "https://server/api/v1/nodes", "list nodes", ""},
		{"GET", "https://server/api/v1/nodes?watch=true", "watch nodes", ""},
		{"PUT", "https://server/apis/coordination.k8s.io/v1/namespaces/n/leases/m",
			"update leases.coordination.k8s.io in namespace n", "m"},
		{"PATCH", "https://server/apis/machinist.dev/v1beta1/namespaces/default/machines/w-1/status?fieldManager=x",
			"patch machines/status.machinist.dev in namespace default", "w-1"},
		{"GET", "https://server/readyz", "", ""},
		{"GET", "https://server/apis/machinist.dev/v1beta1", "", ""},
		{"POST", "https://server/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", ""},
		{"POST", "https://server/apis/authentication.k8s.io/v1/selfsubjectreviews", "", ""},
		{"GET", "https://proxy/clusters/c-1/api/v1/nodes", "list nodes", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, test.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		host := "https://server:6443"
		if request.URL.Host == "proxy" {
			host = "https://proxy/clusters/c-1/"
		}
		got, ok := newDenials("control", host, logr.Discard()).rightOf(request)
		if ok != (test.want != "") || ok && got.String() != test.want || got.Name != test.name {
			t.Errorf("%s %s: right %q to object %q, %t", test.method, test.url, got, got.Name, ok)
		}
	}
}

type granted struct {
	authorizationclient.SelfSubjectAccessReviewInterface
	denies []string
	asked  int
}

func (g *granted) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview,
	_ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	g.asked++
	review.Status.Allowed = !slices.Contains(g.denies, review.Spec.ResourceAttributes.Resource)
	return review, nil
}

type named struct {
	authenticationclient.SelfSubjectReviewInterface
}

func (named) Create(context.Context, *authenticationv1.SelfSubjectReview, metav1.CreateOptions) (
	*authenticationv1.SelfSubjectReview, error) {
	return &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
		UserInfo: authenticationv1.UserInfo{Username: "u"}}}, nil
}

// Rule: missing-right-is-named.
func TestAMissingRightIsLoggedRepeatedlyUntilItIsGranted(t *testing.T) {
	lines, now, cluster := &logs{}, time.Now(), &granted{denies: []string{"nodes", "leases"}}
	d := newDenials("control", "", funcr.New(lines.add, funcr.Options{}))
	d.now = func() time.Time { return now }
	d.rights, d.users = cluster, named{}
	logged := func(want int, text string) {
		t.Helper()
		if n := strings.Count(lines.String(), text); n != want {
			t.Errorf("%q was logged %d times, want %d:\n%s", text, n, want, lines)
		}
	}
	all := func(right) bool { return true }
	first := func(want string, counts func(right) bool) {
		t.Helper()
		if r, found := d.firstMissing(t.Context(), counts); found != (want != "") || r.Resource != want {
			t.Errorf("firstMissing() = %q, %t, want %q", r, found, want)
		}
	}
	nodes, leases := right{Verb: "list", Resource: "nodes"}, right{Verb: "get", Resource: "leases", Name: "a"}
	for range 100 {
		// Admission forbids creating pods.
		for _, r := range []right{nodes, leases, {Verb: "create", Resource: "pods"}} {
			now = now.Add(time.Millisecond)
			d.add(t.Context(), r)
		}
		leases.Name += "a"
	}
	logged(2, "lacks a right")
	logged(1, `"right"="list nodes" "user"="u"`)
	if cluster.asked != 3 {
		t.Errorf("the cluster was asked %d times about 3 rights", cluster.asked)
	}
	first("nodes", all)
	first("leases", func(r right) bool { return r.Resource != "nodes" })
	first("", func(r right) bool { return r.Resource == "pods" })

	cluster.denies = []string{"leases"}
	first("nodes", all) // The answer is not old enough.
	now = now.Add(deniedRecheck)
	for range 10 {
		first("leases", all)
	}
	if cluster.asked != 5 {
		t.Errorf("the cluster was asked %d times, want 5", cluster.asked)
	}
	logged(1, "now has a right that it lacked")
	now = now.Add(deniedReminder)
	first("leases", all)
	logged(3, "lacks a right")
	cluster.denies = []string{"nodes"}
	now = now.Add(deniedRecheck)
	d.add(t.Context(), nodes)
	logged(4, "lacks a right")
}

func TestEssentialRights(t *testing.T) {
	for r, want := range map[right]bool{
		{Verb: "create", Resource: "events"}:                         false,
		{Verb: "get", Resource: "secrets"}:                           false,
		{Verb: "list", Resource: "secrets"}:                          true,
		{Verb: "patch", Resource: "machines", Subresource: "status"}: true,
	} {
		if essential(r) != want {
			t.Errorf("%s: %t", r, !want)
		}
	}
}
