//go:build e2e

package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/ui"
)

// A browser that has the cookie of the view also opens a page of another site. This page must not be able to read or
// change anything with the cookie.
func TestOtherSiteHasNoAccess(t *testing.T) {
	p := newStaticCluster(t)
	p.fleetOf("private", 3)
	s := serve(t, p.cp.Kubeconfig(), "-n", "private")
	b := enter(t, s, "/machines")
	b.awaitText("web-abcde-00000")
	otherSite := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><main>another site</main><form method="post" action="%s"><input name="manifest" value="x"></form>`, s.url("/plan"))
	}))
	t.Cleanup(otherSite.Close)
	// The page must not be able to read the responses or their status codes.
	b.goTo(otherSite.URL)
	for _, attempt := range []string{
		`fetch(%q, {credentials: "include"})`,
		`fetch(%q, {credentials: "include", mode: "no-cors"}).then(r => { if (r.type === "opaque") throw new Error("opaque"); return r; })`,
		`fetch(%q, {credentials: "include", method: "POST", body: new URLSearchParams({manifest: "x"})})`,
		`new Promise((done, fail) => { const s = document.createElement("script"); s.onload = done; s.onerror = () => fail(new Error("refused")); s.src = %q; document.body.append(s); })`,
		`new Promise((done, fail) => { const s = new EventSource(%q, {withCredentials: true}); s.onmessage = done; s.onopen = done; s.onerror = () => { s.close(); fail(new Error("refused")); }; })`,
	} {
		for _, path := range []string{"/machines", "/assets/live.js", "/events"} {
			expression := fmt.Sprintf(attempt, s.url(path))
			if got := get[string](b, `Promise.resolve(`+expression+`).then(() => "access", e => "no access")`); got != "no access" {
				t.Errorf("%s in a page of another site: got %q, want no access", expression, got)
			}
		}
	}
	// The page must not be able to show the view in a frame, or to send a form to the view.
	get[bool](b, fmt.Sprintf(`new Promise(done => { const f = document.createElement("iframe"); f.onload = () => done(true); f.src = %q; document.body.append(f); })`, s.url("/machines")))
	if got := get[string](b, `(() => { try { return frames[0].document.body.textContent; } catch { return "no access"; } })()`); strings.Contains(got, "web-abcde") {
		t.Errorf("a frame in a page of another site: got %q, want no access", got)
	}
	get[bool](b, `(document.forms[0].submit(), true)`)
	b.await(`location.pathname === "/plan"`)
	if got := get[string](b, "document.body.textContent"); !strings.Contains(got, "another origin") {
		t.Errorf("the response to a form of another site: got %q, want a refusal", got)
	}
}

// machinist ui opens a file that redirects to the link, so that the link is not in the arguments of a process. To the
// browser, the first request therefore comes from another site.
func TestLinkOpensFromFile(t *testing.T) {
	p := newStaticCluster(t)
	p.fleetOf("file", 3)
	s := serve(t, p.cp.Kubeconfig(), "-n", "file")
	file := filepath.Join(t.TempDir(), "link.html")
	if err := os.WriteFile(file, []byte(ui.RedirectPage(s.link())), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newTab(t, s)
	b.openLink("file://" + file)
	if got := get[string](b, "location.href"); strings.Contains(got, "token") || !strings.HasPrefix(got, s.url("/")) {
		t.Errorf("the browser shows %s, want the view without the token", got)
	}
	b.open("/machines")
	b.awaitText("web-abcde-00000")
}

// In a DNS rebinding attack, the attacker's host name resolves to loopback. If a view accepted this host name, the
// browser would let the attacker's pages read the view.
func TestReboundHostNameHasNoAccess(t *testing.T) {
	p := newStaticCluster(t)
	p.fleetOf("rebinding", 3)
	s := serve(t, p.cp.Kubeconfig(), "-n", "rebinding")
	b := enter(t, s, "/machines")
	b.awaitText("web-abcde-00000")
	for _, path := range []string{"/machines", "/assets/live.js", "/?" + strings.SplitN(s.link(), "?", 2)[1]} {
		b.goTo(strings.Replace(s.url(path), "127.0.0.1", rebound, 1))
		if got := get[string](b, "document.body.textContent"); !strings.Contains(got, "is not the name of this server") {
			t.Errorf("%s under another host name: got %q, want a refusal", path, got)
		}
	}
}

func TestUserOfOneNamespaceSeesOnlyThisNamespace(t *testing.T) {
	p := newStaticCluster(t)
	p.fleetOf("mine", 3)
	p.fleetOf("theirs", 2)
	role := func(namespace, name string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		p.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules})
		p.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "jane"}}})
	}
	role("mine", "viewer", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch"}}, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"},
		Verbs: []string{"list"}})
	p.create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "one"}, Reason: "SomethingHappened",
		InvolvedObject: corev1.ObjectReference{Kind: "Machine", Namespace: "mine", Name: "web-abcde-00000", UID: p.uid("mine", "web-abcde-00000")},
		Message:        "the cloud was slow", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 2})
	config := kubeconfigFor(t, p.cp, "jane")
	s := serve(t, config, "-n", "mine")
	b := enter(t, s, "/machines")
	b.await(rows + " === 3")
	b.open("/")
	b.awaitText("You may not read leases")
	if text := get[string](b, "document.body.textContent"); strings.Contains(text, "theirs") {
		t.Errorf("the page shows another namespace:\n%s", text)
	}
	b.open("/machines/mine/web-abcde-00000")
	b.awaitText("SomethingHappened")
	b.awaitText("the cloud was slow")
	b.open("/machines/theirs/web-abcde-00000")
	b.awaitText("does not exist in namespace theirs")
	// A plan changes nothing, but its dry run requires the permission to change the deployment.
	b.open("/plan")
	get[bool](b, `(document.getElementById("manifest").value = "{apiVersion: machinist.dev/v1beta1, kind: MachineDeployment, metadata: {name: web}, spec: {replicas: 9}}", document.forms[0].requestSubmit(), true)`)
	b.awaitText("you do not have the permission")
}

func (p *staticCluster) uid(namespace, name string) types.UID {
	p.t.Helper()
	m := &v1beta1.Machine{}
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, m); err != nil {
		p.t.Fatal(err)
	}
	return m.UID
}
