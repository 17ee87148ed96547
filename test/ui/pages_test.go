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

func (p *staticCluster) fleetOf(namespace string, machines int) *v1beta1.MachineSet {
	p.t.Helper()
	p.namespace(namespace)
	p.leases(namespace)
	web := p.deployment(namespace, "web", int32(machines), nil)
	var all []*v1beta1.Machine
	for i := range machines {
		m := machine(web, i)
		if i == 1 {
			withFailure(m, vanished)
		}
		all = append(all, m)
	}
	p.machines(all)
	return web
}

const rows = "document.querySelectorAll('tbody tr').length"

func TestURLContainsFilters(t *testing.T) {
	p := newStaticCluster(t)
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
	if focus := get[string](b, "document.activeElement.name"); focus != "q" {
		t.Errorf("after typing, the focus is on %q, want q", focus)
	}
	// The first click on the back button removes the typed text, and the second click removes the chosen zone. The
	// forward button restores the choice.
	get[bool](b, "(history.back(), true)")
	b.await("location.search === '?zone=sim-1b' && document.querySelector('input[name=q]').value === ''")
	b.await(rows + " === 43")
	get[bool](b, "(history.back(), true)")
	b.await("location.search === '' && document.querySelector('select[name=zone]').value === ''")
	b.await(rows + " === 100")
	get[bool](b, "(history.forward(), true)")
	b.await("document.querySelector('select[name=zone]').value === 'sim-1b'")
	b.await(rows + " === 43")
	// After a reload, the view must show the same rows, because the URL contains the filters.
	b.do(chromedp.Reload())
	b.await(rows + " === 43 && document.querySelector('select[name=zone]').value === 'sim-1b'")
	b.open("/machines?state=broken")
	b.await(rows + " === 1")
	b.do(chromedp.Click(chromedp.CSS("tbody th a")))
	b.await("location.pathname === '/machines/filters/web-abcde-00001'")
	b.awaitText(vanished)
	get[bool](b, "(history.back(), true)")
	b.await("location.search === '?state=broken' && " + rows + " === 1")
	b.open("/machines?page=2")
	b.await(rows + " === 30")
}

func TestPagesWorkWithoutScript(t *testing.T) {
	p := newStaticCluster(t)
	p.fleetOf("plain", 130)
	s := serve(t, p.cp.Kubeconfig(), "-n", "plain")
	b := newTab(t, s)
	b.withoutScript()
	b.login()
	checkPage := func(path string, texts ...string) {
		t.Helper()
		b.open(path)
		text, err := chromedp.Run(b.ctx, chromedp.TextContent(chromedp.CSS("main")))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s without scripts does not contain %q", path, want)
			}
		}
	}
	checkPage("/", "web", "130 machines", "1 failed")
	checkPage("/machines", "web-abcde-00000", "Page 1 of 2")
	checkPage("/machines/plain/web-abcde-00001", "The provider reports", "History", "Conditions")
	checkPage("/deployments/plain/web", "Revisions", "web-abcde")
	checkPage("/zones", "sim-1b")
	checkPage("/ownership", "web-abcde-00003")
	checkPage("/failures", "InstanceVanished")
	checkPage("/orphans", "No provider")

	// Navigation and filters work with links and forms.
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
	b.awaitText("apiVersion or kind is not set")
	if get[bool](b, "document.documentElement.classList.contains('scripted')") || b.count("/events") > 0 {
		t.Error("a script of the view ran")
	}
}

func TestPagesAreAccessible(t *testing.T) {
	p := newStaticCluster(t)
	p.fleetOf("barriers", 30)
	s := serve(t, p.cp.Kubeconfig(), "-n", "barriers")
	b := newTab(t, s)
	b.login()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, path := range []string{"/", "/machines?sort=state", "/machines/barriers/web-abcde-00001",
			"/deployments/barriers/web", "/zones", "/ownership", "/failures", "/orphans", "/plan", "/nowhere"} {
			t.Run(scheme+path, func(t *testing.T) {
				b.t = t
				b.open(path)
				b.checkAccessibility()
			})
		}
	}
	b.t = t
	// For keyboard users, the first link of the page skips the navigation. The focus is always visible.
	b.open("/machines")
	b.do(chromedp.KeyEvent(kb.Tab))
	if first := get[string](b, "document.activeElement.textContent"); first != "Skip to content" {
		t.Errorf("got the first link %q, want Skip to content", first)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await("document.activeElement.id === 'main'")
	for range 6 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if outline := get[string](b, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
			t.Errorf("the focus is not visible on %s", get[string](b, "document.activeElement.outerHTML"))
		}
	}
	// Live updates can be paused.
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("document.getElementById('connection').dataset.state === 'paused'")
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("document.getElementById('connection').dataset.state === 'live'")
}

func TestPagesEscapeHostileTexts(t *testing.T) {
	p := newStaticCluster(t)
	p.namespace("hostile")
	const evil = `"><img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'</td>`
	web := p.deployment("hostile", "web", 1, func(d *v1beta1.MachineDeployment) {
		d.Status.RecentFailures = []v1beta1.FailedMachine{{Name: "web-gone", Reason: evil, Message: evil}}
		d.Status.Conditions[0].Message = evil
	})
	m := machine(web, 1)
	m.Status.Instance.Zone, m.Status.NodeRef.Name, m.Status.Version = evil, evil, evil
	m.Spec.ProviderID = "sim://\"><img/src=x/onerror=window.pwned=3>"
	withFailure(m, evil)
	p.machines([]*v1beta1.Machine{m})
	s := serve(t, p.cp.Kubeconfig(), "-n", "hostile")
	b := enter(t, s, "/")
	for _, path := range []string{"/", "/machines", "/machines/hostile/" + m.Name, "/deployments/hostile/web", "/zones",
		"/ownership",
		"/failures", "/machines?q=" + url.QueryEscape(evil)} {
		b.open(path)
		b.await("document.getElementById('connection').dataset.state === 'live'")
		if got := get[string](b, "String(window.pwned)"); got != "undefined" {
			t.Errorf("%s executed a script from a name or a message: %s", path, got)
		}
		if n := get[int](b, "document.querySelectorAll('main img, main script').length"); n > 0 {
			t.Errorf("%s has %d elements from a name or a message", path, n)
		}
	}
	b.open("/machines/hostile/" + m.Name)
	b.await("document.getElementById('connection').dataset.state === 'live'")
	// After an update of the object, the script of the view must also insert the message as text, and not as HTML.
	withFailure(m, "updated: "+evil)
	if err := p.api.Update(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	b.awaitText(`updated: "><img src=x onerror="window.pwned=1">`)
	if got := get[string](b, "String(window.pwned)"); got != "undefined" {
		t.Errorf("a live update executed a script from a message: %s", got)
	}
}
