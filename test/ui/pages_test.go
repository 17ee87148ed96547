//go:build e2e

package ui

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"machinist.dev/machinist/api/v1beta1"
)

// fleetOf paints a namespace with a fleet in which one machine is broken.
func (p *painted) fleetOf(namespace string, machines int) *v1beta1.MachineSet {
	p.t.Helper()
	p.namespace(namespace)
	p.leases(namespace)
	web := p.deployment(namespace, "web", int32(machines), nil)
	var all []*v1beta1.Machine
	for i := range machines {
		m := machine(web, i)
		if i == 1 {
			broken(m, "The provider reports that the instance does not exist.")
		}
		all = append(all, m)
	}
	p.machines(all)
	return web
}

const rows = "document.querySelectorAll('tbody tr').length"

func TestFiltersAreInTheAddress(t *testing.T) {
	p := paint(t)
	p.fleetOf("filters", 130)
	s := serve(t, p.cp.Kubeconfig(), "-n", "filters")
	b := enter(t, s, "/machines")
	b.await(rows + " === 100")
	b.do(chromedp.SetValue(chromedp.CSS("select[name=zone]"), "sim-1b"))
	get[bool](b, "document.querySelector('select[name=zone]').dispatchEvent(new Event('change', {bubbles: true}))")
	b.await(rows + " === 43")
	b.await("location.search === '?zone=sim-1b'")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "web-abcde-0010"))
	b.await("location.search === '?q=web-abcde-0010&zone=sim-1b'")
	b.await(rows + " === 4")
	if at := get[string](b, "document.activeElement.name"); at != "q" {
		t.Errorf("while a person types the focus goes to %q", at)
	}
	// Back undoes what was typed, and then the choice; forward does it again.
	get[bool](b, "(history.back(), true)")
	b.await("location.search === '?zone=sim-1b' && document.querySelector('input[name=q]').value === ''")
	b.await(rows + " === 43")
	get[bool](b, "(history.back(), true)")
	b.await("location.search === '' && document.querySelector('select[name=zone]').value === ''")
	b.await(rows + " === 100")
	get[bool](b, "(history.forward(), true)")
	b.await("document.querySelector('select[name=zone]').value === 'sim-1b'")
	b.await(rows + " === 43")
	// The address brings the same view, also when it is loaded again.
	b.do(chromedp.Reload())
	b.await(rows + " === 43 && document.querySelector('select[name=zone]').value === 'sim-1b'")
	b.open("/machines?state=broken")
	b.await(rows + " === 1")
	b.do(chromedp.Click(chromedp.CSS("tbody th a")))
	b.await("location.pathname === '/machines/filters/web-abcde-00001'")
	b.shows("The provider reports that the instance does not exist.")
	get[bool](b, "(history.back(), true)")
	b.await("location.search === '?state=broken' && " + rows + " === 1")
	b.open("/machines?page=2")
	b.await(rows + " === 30")
}

func TestEverythingIsThereWithoutScript(t *testing.T) {
	p := paint(t)
	p.fleetOf("plain", 130)
	s := serve(t, p.cp.Kubeconfig(), "-n", "plain")
	b := newTab(t, s)
	b.withoutScript()
	b.login()
	words := func(path string, wanted ...string) {
		t.Helper()
		b.open(path)
		text, err := chromedp.Run(b.ctx, chromedp.TextContent(chromedp.CSS("main")))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wanted {
			if !strings.Contains(text, w) {
				t.Errorf("without script %s lacks %q", path, w)
			}
		}
	}
	words("/", "web", "130 machines", "1 failed")
	words("/machines", "web-abcde-00000", "Page 1 of 2")
	words("/machines/plain/web-abcde-00001", "The provider reports", "History", "Conditions")
	words("/deployments/plain/web", "Revisions", "web-abcde")
	words("/zones", "sim-1b")
	words("/ownership", "web-abcde-00003")
	words("/failures", "InstanceVanished")
	words("/orphans", "No provider")

	// Links and forms do the rest.
	b = newTab(t, s)
	b.withoutOurScript()
	b.login()
	follow := func(selector, path string) {
		t.Helper()
		b.do(chromedp.Click(chromedp.CSS(selector)))
		b.await("location.pathname + location.search === " + quoted(path) + " && document.readyState === 'complete'")
	}
	b.open("/machines")
	follow("a[rel=next]", "/machines?page=2")
	b.open("/machines?zone=sim-1b")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "00100"))
	follow(".filters button", "/machines?q=00100&deployment=&zone=sim-1b&state=")
	b.await(rows + " === 1")
	b.open("/plan")
	b.do(chromedp.SendKeys(chromedp.CSS("textarea"), "kind: Nothing"), chromedp.Click(chromedp.CSS("button.main")))
	b.shows("apiVersion or kind is not set")
	if get[bool](b, "document.documentElement.classList.contains('scripted')") || b.count("/events") > 0 {
		t.Error("the script ran")
	}
}

func TestPagesHaveNoBarriers(t *testing.T) {
	p := paint(t)
	p.fleetOf("barriers", 30)
	s := serve(t, p.cp.Kubeconfig(), "-n", "barriers")
	b := newTab(t, s)
	b.login()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, path := range []string{"/", "/machines?sort=state", "/machines/barriers/web-abcde-00001", "/deployments/barriers/web",
			"/zones", "/ownership", "/failures", "/orphans", "/plan", "/nowhere"} {
			t.Run(scheme+path, func(t *testing.T) {
				b.t = t
				b.open(path)
				b.noBarriers()
			})
		}
	}
	b.t = t
	// The first stop of the keyboard leads past the navigation; the focus can be seen everywhere.
	b.open("/machines")
	b.do(chromedp.KeyEvent(kb.Tab))
	if first := get[string](b, "document.activeElement.textContent"); first != "Skip to content" {
		t.Errorf("the first stop is %q", first)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await("document.activeElement.id === 'main'")
	for range 6 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if seen := get[string](b, `getComputedStyle(document.activeElement).outlineStyle`); seen == "none" {
			t.Errorf("the focus cannot be seen on %s", get[string](b, "document.activeElement.outerHTML"))
		}
	}
	// Live changes can be stopped.
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("document.getElementById('connection').dataset.state === 'paused'")
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("document.getElementById('connection').dataset.state === 'live'")
}

func TestHostileWordsAreOnlyShown(t *testing.T) {
	p := paint(t)
	p.namespace("hostile")
	const evil = `"><img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'</td>`
	web := p.deployment("hostile", "web", 1, func(d *v1beta1.MachineDeployment) {
		d.Status.RecentFailures = []v1beta1.FailedMachine{{Name: "web-gone", Reason: evil, Message: evil}}
		d.Status.Conditions[0].Message = evil
	})
	m := machine(web, 1)
	m.Status.Instance.Zone, m.Status.NodeRef.Name, m.Status.Version, m.Spec.ProviderID = evil, evil, evil, "sim://\"><img/src=x/onerror=window.pwned=3>"
	broken(m, evil)
	p.machines([]*v1beta1.Machine{m})
	s := serve(t, p.cp.Kubeconfig(), "-n", "hostile")
	b := enter(t, s, "/")
	for _, path := range []string{"/", "/machines", "/machines/hostile/" + m.Name, "/deployments/hostile/web", "/zones", "/ownership",
		"/failures", "/machines?q=" + url.QueryEscape(evil)} {
		b.open(path)
		b.await("document.getElementById('connection').dataset.state === 'live'")
		if got := get[string](b, "String(window.pwned)"); got != "undefined" {
			t.Errorf("%s ran what was in a name or a message: %s", path, got)
		}
		if n := get[int](b, "document.querySelectorAll('main img, main script').length"); n > 0 {
			t.Errorf("%s has %d elements that were in a name or a message", path, n)
		}
	}
	b.open("/machines/hostile/" + m.Name)
	b.await("document.getElementById('connection').dataset.state === 'live'")
	// The script, too, puts in what it is sent as text.
	broken(m, "once more: "+evil)
	if err := p.api.Update(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	b.shows(`once more: "><img src=x onerror="window.pwned=1">`)
	if got := get[string](b, "String(window.pwned)"); got != "undefined" {
		t.Errorf("the script ran what was in a message: %s", got)
	}
}
