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
	inside = Grant{Role: manifests.ProviderControl, Verb: "get", Resource: "secrets", within: "inside"}
	all    = []Grant{control, tokens, evict, record}
)

// Rule: roles-are-minimal.
func TestJudge(t *testing.T) {
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
		"a grant that is used": {all, []auditlog.Request{get("default")}, []Grant{control}, nil},
		"also by a request that fails for another reason": {all,
			[]auditlog.Request{with(get("default"), func(r *auditlog.Request) { r.Code = 404 })}, []Grant{control}, nil},
		"of two the one for less": {all, []auditlog.Request{get("kube-system")}, []Grant{tokens}, nil},
		"a subresource": {all,
			[]auditlog.Request{{User: "p", Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "a", Name: "b",
				Code: 201}}, []Grant{evict}, nil},
		"not its resource": {all,
			[]auditlog.Request{{User: "p", Verb: "create", Resource: "pods", Namespace: "a", Code: 201}},
			nil, []string{`create pods in namespace "a" by p is allowed by something else than the roles`}},
		"an object of a name": {all,
			[]auditlog.Request{{User: "p", Verb: "get", Resource: "configmaps", Namespace: "machinist-system", Name: "id",
				Code: 200}}, []Grant{record}, nil},
		"not another object": {all,
			[]auditlog.Request{{User: "p", Verb: "get", Resource: "configmaps", Namespace: "machinist-system", Name: "other",
				Code: 200}},
			nil, []string{`get configmaps in namespace "machinist-system" by p is allowed by something else than the roles`}},
		"not another group": {all,
			[]auditlog.Request{with(get("default"), func(r *auditlog.Request) { r.Group = "other" })},
			nil, []string{`get secrets.other in namespace "default" by p is allowed by something else than the roles`}},
		"a denial": {[]Grant{tokens},
			[]auditlog.Request{with(get("default"), denied)}, nil,
			[]string{`get secrets in namespace "default" by p was refused`}},
		"many denials of a kind are one": {[]Grant{tokens},
			[]auditlog.Request{with(get("default"), denied), with(get("default"), denied)}, nil,
			[]string{`get secrets in namespace "default" by p was refused`}},
		"a denial by an API server that has not read the roles yet": {all,
			[]auditlog.Request{with(get("default"), denied), with(auditlog.Request{User: "p", Verb: "get", Path: "/readyz"},
				denied)}, nil, nil},
		"a denial outside of the namespace for which the role is bound": {[]Grant{inside},
			[]auditlog.Request{get("inside"), with(get("outside"), denied)}, []Grant{inside},
			[]string{`get secrets in namespace "outside" by p was refused`}},
		"a rejection by admission, whatever was admitted before": {all,
			[]auditlog.Request{get("default"), with(get("default"), refused)}, []Grant{control},
			[]string{`get secrets in namespace "default" by p was refused`}},
		"a rejection because the namespace is being deleted": {all,
			[]auditlog.Request{with(get("default"), func(r *auditlog.Request) {
				r.Code, r.NamespaceEnds = 403, true
			})}, nil, nil},
		"what everybody may ask": {all, []auditlog.Request{{User: "p", Verb: "get", Path: "/readyz", Code: 200},
			{User: "p", Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Code: 201}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			used, wrong := judge(test.requests, test.grants)
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
func TestANeedlessVerbIsFound(t *testing.T) {
	folder := t.TempDir()
	needless := Grant{Role: manifests.ProviderTarget, Verb: "delete", Resource: "persistentvolumes"}
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
		t.Errorf("all are used or have a reason: %v", err)
	}
	err = compare(append(slices.Clone(all), needless), used, reasons)
	if err == nil || !strings.Contains(err.Error(), `"provider-target: delete persistentvolumes"`) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("with a needless verb: %v", err)
	}
	reasons["provider-target: get pods"] = "a reason"
	if err := compare(all, used, reasons); err == nil ||
		!strings.Contains(err.Error(), `there is a reason for "provider-target: get pods"`) {
		t.Errorf("with a reason for what is not granted: %v", err)
	}
}

// entry is a line of an audit log.
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
	secret, node := entry("machinist-provider-sim", "get", "secrets", "default", "a"), entry("machinist-manager", "patch",
		"nodes", "", "a")
	control, target := log("control", secret+entry("kubelet", "delete", "nodes", "", "a")), log("target", node)
	if err := Record(folder, Clusters{Control: control, Target: target}); err != nil {
		t.Errorf("each where it may: %v", err)
	}
	both := log("both", secret+node)
	if err := Record(folder, Clusters{Control: both, Target: both}); err != nil {
		t.Errorf("one cluster is both: %v", err)
	}
	for name, c := range map[string]Clusters{
		"a Node in the control cluster":     {Control: both, Target: target},
		"a Secret in the target cluster":    {Control: control, Target: both},
		"a Node without any target cluster": {Control: both},
	} {
		if err := Record(folder, c); err == nil || !strings.Contains(err.Error(), "allowed by something else") {
			t.Errorf("%s: %v", name, err)
		}
	}
	used, err := read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(used)), []string{"manager-target: patch nodes",
		"provider-control: get secrets"}; !slices.Equal(got, want) {
		t.Errorf("used are %q, want %q", got, want)
	}
}

// Rule: roles-are-minimal.
func TestRolesAreAboutCertainVerbsOfCertainResources(t *testing.T) {
	for _, p := range processes() {
		for _, role := range []manifests.Role{p.control, p.target} {
			if grants, err := of(role, ""); err != nil || len(grants) == 0 {
				t.Errorf("%s: %d grants, %v", role, len(grants), err)
			}
		}
	}
	for name, rule := range map[string]rbacv1.PolicyRule{
		"any verb":        {Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		"any resource":    {Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"*"}},
		"any subresource": {Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/*"}},
		"any group":       {Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"pods"}},
		"a path":          {Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
	} {
		if certain(rule) {
			t.Errorf("%s is taken for certain: %+v", name, rule)
		}
	}
}
