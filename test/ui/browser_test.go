//go:build e2e

package ui

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page in a browser session of its own: no cookies of other tests.
type tab struct {
	t   *testing.T
	ctx context.Context
	at  *served

	mu sync.Mutex
	// asked are the addresses of all requests, and errors what the page complained about.
	asked, errors []string
}

// newTab opens a tab. When the test ends nothing must have left this machine, and no script must have failed.
func newTab(t *testing.T, s *served) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx, at: s}
	// The tab lives as long as the context of what opens it.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.asked = append(b.asked, e.Request.URL)
		case *runtime.EventExceptionThrown:
			b.errors = append(b.errors, e.ExceptionDetails.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, address := range b.asked {
			u, err := url.Parse(address)
			if err != nil || u.Scheme != "data" && u.Hostname() != "127.0.0.1" && u.Hostname() != rebound {
				t.Errorf("a request left this machine: %s", address)
			}
		}
		for _, e := range b.errors {
			t.Errorf("a script of the page failed: %s", e)
		}
	})
	return b
}

// enter opens a page with a link that machinist ui printed.
func enter(t *testing.T, s *served, path string) *tab {
	t.Helper()
	b := newTab(t, s)
	b.login()
	b.open(path)
	return b
}

func (b *tab) login() {
	b.t.Helper()
	b.do(chromedp.Navigate(b.at.link()), chromedp.WaitReady("main"))
}

// do acts in the page.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("in the browser: %v\n%s", err, b.source())
	}
}

// open goes to a path of the view.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.at.url(path)), chromedp.WaitReady("main"))
}

// goTo goes to an address anywhere.
func (b *tab) goTo(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address), chromedp.WaitReady("body"))
}

// source is the text of the page, for messages.
func (b *tab) source() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? location.href + "\n" + document.body.innerText : ""`))
	if err != nil {
		return err.Error()
	}
	return text
}

// await waits until an expression is true of the page, looking again whenever the page changes.
func (b *tab) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	watch := chromedp.Evaluate[bool](`new Promise(done => {
		const is = () => (`+expression+`);
		if (is()) return done(true);
		const look = () => { if (is()) { changes.disconnect(); done(true); } };
		const changes = new MutationObserver(look);
		for (const happens of ["readystatechange", "focusin", "focusout"]) document.addEventListener(happens, look);
		changes.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	})`, chromedp.EvalAwaitPromise)
	for {
		_, err := chromedp.Run(ctx, watch)
		if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "navigated") {
			continue // The next page may be the one.
		}
		if err != nil {
			b.t.Fatalf("waited for %s: %v\nthe page:\n%s", expression, err, b.source())
		}
		return
	}
}

// shows waits for words in the main part of the page.
func (b *tab) shows(words string) {
	b.t.Helper()
	b.await("((document.querySelector('main') || document.body || {}).textContent || '').includes(" + quoted(words) + ")")
}

// get evaluates an expression, and waits for what it promises.
func get[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %.200s: %v\n%s", expression, err, b.source())
	}
	return value
}

// call sends a command to the browser about the tab.
func call[P, R any](b *tab, command cdp.Command[P, R], parameters P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, parameters)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// count is how many requests for a path the page has made.
func (b *tab) count(path string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range b.asked {
		if u, err := url.Parse(address); err == nil && u.Path == path {
			n++
		}
	}
	return n
}

// scheme has the page drawn light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// withoutScript has pages run no script.
func (b *tab) withoutScript() {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// withoutOurScript has pages not get the script of the view. What a person can do in a page is then what links and
// forms do.
func (b *tab) withoutOurScript() {
	b.t.Helper()
	call(b, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: []*network.BlockPattern{
		{URLPattern: "http://*:*/assets/*.js", Block: true}}})
}

// picture keeps a picture of the page in a folder, in a format that browsers know.
func (b *tab) picture(folder, name, format string) {
	b.t.Helper()
	quality := int64(82)
	picture := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormat(format),
		Quality: &quality})
	if err := os.WriteFile(filepath.Join(folder, name+"."+format), picture.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// noBarriers fails the test where the page keeps people from using it.
func (b *tab) noBarriers() {
	b.t.Helper()
	get[chromedp.Void](b, string(axe))
	found := get[[]struct {
		ID    string `json:"id"`
		Help  string `json:"help"`
		Nodes []struct {
			HTML    string `json:"html"`
			Summary string `json:"failureSummary"`
		} `json:"nodes"`
	}](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`)
	for _, v := range found {
		for i, n := range v.Nodes {
			if i == 3 {
				break
			}
			b.t.Errorf("%s: %s\n  %s\n  %s", v.ID, v.Help, n.HTML, n.Summary)
		}
	}
}
