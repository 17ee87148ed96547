//go:build e2e

package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// A page of another site in the same browser, which has the cookie, gets nothing and changes nothing.
func TestAPageOfAnotherSiteGetsNothing(t *testing.T) {
	p := paint(t)
	p.fleetOf("private", 3)
	s := serve(t, p.cp.Kubeconfig(), "-n", "private")
	b := enter(t, s, "/machines")
	b.shows("web-abcde-00000")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><main>evil</main><form method="post" action="%s"><input name="manifest" value="x"></form>`, s.url("/plan"))
	}))
	t.Cleanup(evil.Close)
	// The server says by its codes what it thought of each request; the page sees none of them.
	b.goTo(evil.URL)
	for _, attempt := range []string{
		`fetch(%q, {credentials: "include"})`,
		`fetch(%q, {credentials: "include", mode: "no-cors"}).then(r => { if (r.type === "opaque") throw new Error("opaque"); return r; })`,
		`fetch(%q, {credentials: "include", method: "POST", body: new URLSearchParams({manifest: "x"})})`,
		`new Promise((done, fail) => { const s = document.createElement("script"); s.onload = done; s.onerror = () => fail(new Error("refused")); s.src = %q; document.body.append(s); })`,
		`new Promise((done, fail) => { const s = new EventSource(%q, {withCredentials: true}); s.onmessage = done; s.onopen = done; s.onerror = () => { s.close(); fail(new Error("refused")); }; })`,
	} {
		for _, path := range []string{"/machines", "/assets/live.js", "/events"} {
			expression := fmt.Sprintf(attempt, s.url(path))
			if got := get[string](b, `Promise.resolve(`+expression+`).then(() => "got it", e => "nothing")`); got != "nothing" {
				t.Errorf("a page of another site: %s: %s", expression, got)
			}
		}
	}
	// Nor may it put the view into a frame, or send a form there.
	get[bool](b, fmt.Sprintf(`new Promise(done => { const f = document.createElement("iframe"); f.onload = () => done(true); f.src = %q; document.body.append(f); })`, s.url("/machines")))
	if got := get[string](b, `(() => { try { return frames[0].document.body.textContent; } catch { return "nothing"; } })()`); strings.Contains(got, "web-abcde") {
		t.Errorf("a frame in a page of another site shows %q", got)
	}
	get[bool](b, `(document.forms[0].submit(), true)`)
	b.await(`location.pathname === "/plan"`)
	if got := get[string](b, "document.body.textContent"); !strings.Contains(got, "another origin") {
		t.Errorf("a form of another site is answered with %q", got)
	}
}

// A name that its owner lets resolve to loopback is another site, whose pages are the same origin as the view under
// that name.
func TestANameThatResolvesToLoopbackGetsNothing(t *testing.T) {
	p := paint(t)
	p.fleetOf("rebinding", 3)
	s := serve(t, p.cp.Kubeconfig(), "-n", "rebinding")
	b := enter(t, s, "/machines")
	b.shows("web-abcde-00000")
	for _, path := range []string{"/machines", "/assets/live.js", "/?" + strings.SplitN(s.link(), "?", 2)[1]} {
		b.goTo(strings.Replace(s.url(path), "127.0.0.1", rebound, 1))
		if got := get[string](b, "document.body.textContent"); !strings.Contains(got, "is not the name of this server") {
			t.Errorf("%s under another name is answered with %q", path, got)
		}
	}
}

func TestWhoMaySeeOneNamespaceSeesItAlone(t *testing.T) {
	p := paint(t)
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
	b.shows("You may not read leases")
	if text := get[string](b, "document.body.textContent"); strings.Contains(text, "theirs") {
		t.Errorf("another namespace is shown:\n%s", text)
	}
	b.open("/machines/mine/web-abcde-00000")
	b.shows("SomethingHappened")
	b.shows("the cloud was slow")
	b.open("/machines/theirs/web-abcde-00000")
	b.shows("does not exist in namespace theirs")
	// To plan, the right to change a deployment is needed, although nothing is changed.
	b.open("/plan")
	get[bool](b, `(document.getElementById("manifest").value = "{apiVersion: machinist.dev/v1beta1, kind: MachineDeployment, metadata: {name: web}, spec: {replicas: 9}}", document.forms[0].requestSubmit(), true)`)
	b.shows("you do not have the permission")
}

// uid is that of a machine.
func (p *painted) uid(namespace, name string) types.UID {
	p.t.Helper()
	m := &v1beta1.Machine{}
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, m); err != nil {
		p.t.Fatal(err)
	}
	return m.UID
}
