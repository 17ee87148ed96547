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

type tab struct {
	t      *testing.T
	ctx    context.Context
	server *served

	mu                sync.Mutex
	requested, errors []string
}

// newTab opens a tab. The test fails at its end if the browser has sent a request to another host, or if a script has
// failed.
func newTab(t *testing.T, s *served) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
	b := &tab{t: t, ctx: ctx, server: s}
	// chromedp closes the tab when the context of the first call is done, so this call must not have a timeout.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.requested = append(b.requested, e.Request.URL)
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
		for _, address := range b.requested {
			u, err := url.Parse(address)
			if err != nil || u.Scheme != "data" && u.Scheme != "file" && u.Hostname() != "127.0.0.1" && u.Hostname() != rebound {
				t.Errorf("a request left this machine: %s", address)
			}
		}
		for _, e := range b.errors {
			t.Errorf("a script failed: %s", e)
		}
	})
	return b
}

func enter(t *testing.T, s *served, path string) *tab {
	t.Helper()
	b := newTab(t, s)
	b.login()
	b.open(path)
	return b
}

func (b *tab) login() {
	b.t.Helper()
	b.openLink(b.server.link())
}

func (b *tab) openLink(address string) {
	b.t.Helper()
	b.goTo(address)
	b.await(`document.querySelector("main") !== null`)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("act in the browser: %v\n%s", err, b.content())
	}
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.server.url(path)), chromedp.WaitReady("main"))
}

func (b *tab) goTo(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address), chromedp.WaitReady("body"))
}

func (b *tab) content() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx,
		chromedp.Evaluate[string](`document.body ? location.href + "\n" + document.body.innerText : ""`))
	if err != nil {
		return err.Error()
	}
	return text
}

// await waits until a JavaScript expression is true and evaluates the expression after each change of the page.
func (b *tab) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	watch := chromedp.Evaluate[bool](`new Promise(done => {
		const isTrue = () => (`+expression+`);
		if (isTrue()) return done(true);
		const check = () => { if (isTrue()) { observer.disconnect(); done(true); } };
		const observer = new MutationObserver(check);
		for (const type of ["readystatechange", "focusin", "focusout"]) document.addEventListener(type, check);
		observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	})`, chromedp.EvalAwaitPromise)
	for {
		_, err := chromedp.Run(ctx, watch)
		if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "navigated") {
			continue // The browser is loading another page, on which the expression may be true.
		}
		if err != nil {
			b.t.Fatalf("waited for %s: %v\nthe page:\n%s", expression, err, b.content())
		}
		return
	}
}

func (b *tab) awaitText(text string) {
	b.t.Helper()
	b.await("((document.querySelector('main') || document.body || {}).textContent || '').includes(" + quoted(text) + ")")
}

func get[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %.200s: %v\n%s", expression, err, b.content())
	}
	return value
}

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

func (b *tab) count(path string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range b.requested {
		if u, err := url.Parse(address); err == nil && u.Path == path {
			n++
		}
	}
	return n
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

func (b *tab) withoutScript() {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// withoutOurScript blocks the scripts of the view, so that only its links and forms work. The scripts of the test still
// run.
func (b *tab) withoutOurScript() {
	b.t.Helper()
	call(b, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: []*network.BlockPattern{
		{URLPattern: "http://*:*/assets/*.js", Block: true}}})
}

func (b *tab) picture(folder, name, format string) {
	b.t.Helper()
	quality := int64(82)
	picture := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormat(format),
		Quality: &quality})
	if err := os.WriteFile(filepath.Join(folder, name+"."+format), picture.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) checkAccessibility() {
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
