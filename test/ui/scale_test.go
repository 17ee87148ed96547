//go:build e2e

package ui

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"machinist.dev/machinist/api/v1beta1"
)

const maxBytes = 150_000

func TestPagesWithTenThousandMachines(t *testing.T) {
	t.Parallel()
	p := newStaticCluster(t)
	const deployments, each = 40, 250
	begun := time.Now()
	p.namespace("large")
	p.leases("large")
	var all []*v1beta1.Machine
	for i := range deployments {
		set := p.deployment("large", fmt.Sprintf("workers-%02d", i), each, nil)
		for j := range each {
			m := machine(set, j)
			if j%50 == 7 { // These machines have an unusually long message.
				withFailure(m, fmt.Sprintf("The provider reports that instance %s does not exist.", m.Spec.ProviderID))
			}
			all = append(all, m)
		}
	}
	p.machines(all)
	t.Logf("created %d machines in %s", len(all), time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	s := serve(t, p.cp.Kubeconfig(), "-n", "large")
	t.Logf("machinist ui started in %s", time.Since(begun).Round(time.Millisecond))

	jar, _ := cookiejar.New(nil)
	httpClient := &http.Client{Jar: jar}
	first := s.link()
	for _, path := range []string{"", "/", "/machines", "/machines?page=100", "/machines?sort=state",
		"/machines?state=broken&zone=sim-1a",
		"/machines/large/" + all[7].Name, "/deployments/large/workers-00", "/zones", "/ownership", "/failures", "/orphans"} {
		address := s.url(path)
		if path == "" {
			address = first
		}
		at := time.Now()
		answer, err := httpClient.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("get %s: got status %d and error %v", path, answer.StatusCode, err)
		}
		t.Logf("%-40s %6d bytes in %s", path, len(content), time.Since(at).Round(100*time.Microsecond))
		if len(content) >= maxBytes {
			t.Errorf("%s has %d bytes, want fewer than %d", path, len(content), maxBytes)
		}
	}

	b := newTab(t, s)
	b.login()
	// The tab must be in front, because the browser does not paint tabs in the background.
	call(b, page.BringToFront, cdp.Empty{})
	b.open("/machines?q=" + all[100].Name)
	b.await("document.getElementById('connection').dataset.state === 'live' && " + rows + " === 1")
	// The browser paints the page before it takes a screenshot.
	if _, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot()); err != nil {
		t.Fatal(err)
	}
	t.Logf("first paint after %.0f ms", get[float64](b, `new Promise(done => new PerformanceObserver(list => {
		for (const e of list.getEntriesByName("first-contentful-paint")) done(e.startTime);
	}).observe({type: "paint", buffered: true}))`))
	// The page must display a change of one machine without being loaded again.
	m := all[100]
	withFailure(m, "It is gone.")
	at := time.Now()
	if err := p.api.Update(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	b.await("document.querySelector('tbody .st').textContent === 'Failed'")
	t.Logf("a change is visible after %s", time.Since(at).Round(time.Millisecond))
	b.open("/")
	b.await(fmt.Sprintf("document.querySelector('.totals').textContent.includes('%d machines')", len(all)))
	b.do(chromedp.Navigate(s.url("/machines?sort=state")))
	b.await(rows + " === 100")
}
