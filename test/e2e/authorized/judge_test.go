package authorized

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/internal/install/manifests"
)

var (
	control = Grant{Role: manifests.ProviderControl, Verb: "get", Resource: "secrets"}
	tokens  = Grant{Role: manifests.ProviderTarget, Namespace: "kube-system", Verb: "get", Resource: "secrets"}
	evict   = Grant{Role: manifests.ProviderTarget, Verb: "create", Resource: "pods/eviction"}
	record  = Grant{Role: manifests.ManagerControl, Namespace: "machinist-system", Verb: "get", Resource: "configmaps",
		Name: "id"}
	inside = Grant{Role: manifests.ProviderControl, Verb: "get", Resource: "secrets", boundIn: "inside"}
	all    = []Grant{control, tokens, evict, record}
)

// Rule: roles-are-minimal.
func TestCheckRequests(t *testing.T) {
	get := func(ns string) auditlog.Request {
		return auditlog.Request{User: "p", Verb: "get", Resource: "secrets", Namespace: ns, Name: "a", Code: 200}
	}
	with := func(r auditlog.Request, change func(*auditlog.Request)) auditlog.Request {
		change(&r)
		return r
	}
	refused := func(r *auditlog.Request) { r.Code = 403 }
	denied := func(r *auditlog.Request) { r.Code, r.Denied = 403, true }
	for name, test := range map[string]struct {
		grants   []Grant
		requests []auditlog.Request
		used     []Grant
		wrong    []string
	}{
		"used grant": {all, []auditlog.Request{get("default")}, []Grant{control}, nil},
		"grant used by a request that fails for another reason": {all,
			[]auditlog.Request{with(get("default"), func(r *auditlog.Request) { r.Code = 404 })}, []Grant{control}, nil},
		"more specific one of two grants": {all, []auditlog.Request{get("kube-system")}, []Grant{tokens}, nil},
		"subresource": {all,
			[]auditlog.Request{{User: "p", Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "a", Name: "b",
				Code: 201}}, []Grant{evict}, nil},
		"resource of a granted subresource": {all,
			[]auditlog.Request{{User: "p", Verb: "create", Resource: "pods", Namespace: "a", Code: 201}},
			nil, []string{`create pods in namespace "a" by p is allowed, but not by the roles`}},
		"named object": {all,
			[]auditlog.Request{{User: "p", Verb: "get", Resource: "configmaps", Namespace: "machinist-system", Name: "id",
				Code: 200}}, []Grant{record}, nil},
		"object with another name": {all,
			[]auditlog.Request{{User: "p", Verb: "get", Resource: "configmaps", Namespace: "machinist-system", Name: "other",
				Code: 200}},
			nil, []string{`get configmaps in namespace "machinist-system" by p is allowed, but not by the roles`}},
		"resource of another group": {all,
			[]auditlog.Request{with(get("default"), func(r *auditlog.Request) { r.Group = "other" })},
			nil, []string{`get secrets.other in namespace "default" by p is allowed, but not by the roles`}},
		"denial": {[]Grant{tokens},
			[]auditlog.Request{with(get("default"), denied)}, nil,
			[]string{`get secrets in namespace "default" by p was refused`}},
		"several denials of a kind": {[]Grant{tokens},
			[]auditlog.Request{with(get("default"), denied), with(get("default"), denied)}, nil,
			[]string{`get secrets in namespace "default" by p was refused`}},
		"denial by an API server that has not read the roles yet": {all,
			[]auditlog.Request{with(get("default"), denied), with(auditlog.Request{User: "p", Verb: "get", Path: "/readyz"},
				denied)}, nil, nil},
		"denial outside of the namespace in which the role is bound": {[]Grant{inside},
			[]auditlog.Request{get("inside"), with(get("outside"), denied)}, []Grant{inside},
			[]string{`get secrets in namespace "outside" by p was refused`}},
		"rejection by admission after an allowed request": {all,
			[]auditlog.Request{get("default"), with(get("default"), refused)}, []Grant{control},
			[]string{`get secrets in namespace "default" by p was refused`}},
		"rejection because the namespace is being deleted": {all,
			[]auditlog.Request{with(get("default"), func(r *auditlog.Request) {
				r.Code, r.NamespaceEnds = 403, true
			})}, nil, nil},
		"requests allowed for all users": {all, []auditlog.Request{{User: "p", Verb: "get", Path: "/readyz", Code: 200},
			{User: "p", Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Code: 201}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			used, wrong := checkRequests(test.requests, test.grants)
			got := slices.SortedFunc(maps.Keys(used), func(a, b Grant) int { return strings.Compare(a.String(), b.String()) })
			if diff := cmp.Diff(test.used, got, cmp.AllowUnexported(Grant{})); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wrong, wrong); diff != "" {
				t.Errorf("wrong (-want +got):\n%s", diff)
			}
		})
	}
}

// Rule: roles-are-minimal.
func TestCompareFindsUnusedGrant(t *testing.T) {
	folder := t.TempDir()
	unneeded := Grant{Role: manifests.ProviderTarget, Verb: "delete", Resource: "persistentvolumes"}
	for _, lines := range [][]string{{control.String(), tokens.String()}, {evict.String()}} {
		if err := write(folder, lines); err != nil {
			t.Fatal(err)
		}
	}
	used, err := read(folder)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{record.String(): "a reason"}
	if err := compare(all, used, reasons); err != nil {
		t.Errorf("all grants are used or have a reason: got error %v, want none", err)
	}
	err = compare(append(slices.Clone(all), unneeded), used, reasons)
	if err == nil || !strings.Contains(err.Error(), `"provider-target: delete persistentvolumes"`) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("unused grant: got error %v, want one that names it", err)
	}
	reasons["provider-target: get pods"] = "a reason"
	if err := compare(all, used, reasons); err == nil ||
		!strings.Contains(err.Error(), `there is a reason for "provider-target: get pods"`) {
		t.Errorf("reason without a grant: got error %v, want one that names it", err)
	}
}

func entry(user, verb, resource, ns, name string) string {
	return fmt.Sprintf(`{"kind":"Event","stage":"ResponseComplete","requestURI":"/x","verb":%q,"user":{"username":%q},`+
		`"objectRef":{"resource":%q,"namespace":%q,"name":%q},"responseStatus":{"code":200}}`+"\n", verb, user,
		resource, ns, name)
}

// Rule: roles-are-minimal.
func TestRecordComparesEachClusterWithItsRoles(t *testing.T) {
	folder := t.TempDir()
	log := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret, node := entry("machinist-provider-sim", "get", "secrets", "default", "a"), entry("machinist-manager", "get",
		"nodes", "", "a")
	control, target := log("control", secret+entry("kubelet", "delete", "nodes", "", "a")), log("target", node)
	if err := Record(folder, Clusters{Control: control, Target: target}); err != nil {
		t.Errorf("separate clusters: got error %v, want none", err)
	}
	both := log("both", secret+node)
	if err := Record(folder, Clusters{Control: both, Target: both}); err != nil {
		t.Errorf("one cluster for both: got error %v, want none", err)
	}
	for name, c := range map[string]Clusters{
		"Node in the control cluster":   {Control: both, Target: target},
		"Secret in the target cluster":  {Control: control, Target: both},
		"Node without a target cluster": {Control: both},
	} {
		if err := Record(folder, c); err == nil || !strings.Contains(err.Error(), "is allowed, but not by the roles") {
			t.Errorf("%s: got error %v, want a request that the roles do not allow", name, err)
		}
	}
	used, err := read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(used)), []string{"manager-target: get nodes",
		"provider-control: get secrets"}; !slices.Equal(got, want) {
		t.Errorf("got used grants %q, want %q", got, want)
	}
}

// Rule: roles-are-minimal.
func TestRolesHaveNoWildcards(t *testing.T) {
	for _, p := range processes() {
		for _, role := range []manifests.Role{p.control, p.target} {
			if grants, err := grantsOf(role, ""); err != nil || len(grants) == 0 {
				t.Errorf("%s: got %d grants, error %v; want some grants", role, len(grants), err)
			}
		}
	}
	for name, rule := range map[string]rbacv1.PolicyRule{
		"any verb":        {Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		"any resource":    {Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"*"}},
		"any subresource": {Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/*"}},
		"any group":       {Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"pods"}},
		"path":            {Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
	} {
		if explicit(rule) {
			t.Errorf("%s: rule counts as explicit: %+v", name, rule)
		}
	}
}
