//go:build e2e

package ui

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
)

// rebound is a host name that the browser resolves to loopback.
const rebound = "rebound.example"

var (
	running *stack.Stack
	static  *controlplane.ControlPlane
	browser context.Context
	axe     []byte
)

const patience = 60 * time.Second

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	logf.SetLogger(logr.Discard())
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	ready, err := exec.Command("../../hack/chromium.sh").Output()
	paths := strings.Split(strings.TrimSpace(string(ready)), "\n")
	if err != nil || len(paths) < 2 {
		return fail("prepare the browser", err)
	}
	if axe, err = os.ReadFile(paths[len(paths)-1]); err != nil {
		return fail("read axe-core", err)
	}
	dir, err := os.MkdirTemp("", "machinist-ui-")
	if err != nil {
		return fail("create a folder", err)
	}
	defer os.RemoveAll(dir)
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		return fail("find the programs", err)
	}
	stackStarted := make(chan error, 1)
	go func() {
		var err error
		running, err = stack.Start(context.Background(), stack.Options{BinDir: bin, Dir: filepath.Join(dir, "stack")})
		stackStarted <- err
	}()
	staticStarted := make(chan error, 1)
	go func() {
		var err error
		static, err = startStatic(filepath.Join(dir, "static"))
		staticStarted <- err
	}()
	ctx, stopBrowser := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(paths[len(paths)-2]),
		chromedp.UserDataDir(filepath.Join(dir, "browser")), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP "+rebound+" 127.0.0.1"), chromedp.WindowSize(1400, 900))
	defer stopBrowser()
	var closeContext context.CancelFunc
	browser, closeContext = chromedp.NewContext(ctx)
	defer closeContext()
	if err := chromedp.Do(browser); err != nil {
		return fail("start the browser", err)
	}
	if err := <-stackStarted; err != nil {
		return fail("start the stack", err)
	}
	defer func() { _ = running.Stop() }()
	if err := <-staticStarted; err != nil {
		return fail("start the cluster without controllers", err)
	}
	defer func() { _ = static.Stop() }()
	return m.Run()
}

type served struct {
	t     *testing.T
	base  *url.URL
	links chan string
	logs  bytes.Buffer
}

func serve(t *testing.T, kubeconfig string, args ...string) *served {
	t.Helper()
	args = append([]string{"ui", "--open=false", "--kubeconfig", kubeconfig}, args...)
	program := exec.Command("../../bin/machinist", args...)
	s := &served{t: t, links: make(chan string, 16)}
	program.Stderr = &s.logs
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.readLinks(out)
	}()
	t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := program.Wait(); err != nil {
			t.Errorf("machinist ui ended with %v: %s", err, s.logs.String())
		}
	})
	link := s.link()
	if s.base, err = url.Parse(link); err != nil {
		t.Fatal(err)
	}
	s.base.RawQuery = ""
	s.links <- link
	return s
}

func (s *served) readLinks(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if at := strings.Index(lines.Text(), "http://"); at >= 0 {
			s.links <- lines.Text()[at:]
		}
	}
	close(s.links)
}

func (s *served) link() string {
	s.t.Helper()
	select {
	case link, open := <-s.links:
		if !open {
			s.t.Fatalf("machinist ui ended: %s", s.logs.String())
		}
		return link
	case <-time.After(patience):
		s.t.Fatal("machinist ui printed no link")
	}
	return ""
}

func (s *served) url(path string) string { return strings.TrimSuffix(s.base.String(), "/") + path }

func admin() string { return running.Control.Kubeconfig() }

func kubeconfigFor(t *testing.T, cp *controlplane.ControlPlane, user string) string {
	t.Helper()
	config, err := cp.UserConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), user)
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	return path
}
