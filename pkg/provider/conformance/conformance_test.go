package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func configOf(c *fakeCloud, driver func() provider.Driver) Config {
	credentials := func(token string) provider.Credentials {
		return provider.NewCredentials(map[string][]byte{"token": []byte(token)})
	}
	return Config{
		New: func() (provider.Driver, error) { return driver(), nil },
		Class: provider.Class{Spec: []byte(`{"apiVersion":"fake/v1","kind":"Fake","size":"small"}`),
			Credentials: credentials(c.account)},
		OtherSpec: []byte(`{"apiVersion":"fake/v1","kind":"Fake","size":"large"}`),
		InvalidSpecs: []InvalidSpec{{Name: "no such size", Field: "size",
			Spec: []byte(`{"apiVersion":"fake/v1","kind":"Fake","size":"huge"}`)}},
		MalformedCredentials: []provider.Credentials{credentials("with white space"),
			provider.NewCredentials(map[string][]byte{"user": []byte("another-user")})},
		RejectedCredentials: credentials("unknown-token"),
		UserDataLimit:       64 << 10,
		Timeout:             time.Minute,
		RequireHooks:        true,
		Legacies:            fakeLegacies(c.account),
		CollectorTags:       []string{oldCollector, "disk/" + oldCollector},
		Cloud:               c.hooks(),
	}
}

func TestCorrectDriverPassesAllCases(t *testing.T) {
	for name, set := range map[string]func(*fakeCloud){
		"consistent": func(*fakeCloud) {},
		"lagging":    func(c *fakeCloud) { c.readLag = 3 },
		"immediate":  func(c *fakeCloud) { c.bootReads, c.deleteCalls = 0, 0 },
		"late parts": func(c *fakeCloud) { c.bootReads, c.lateDisks = 8, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // The tests wait most of the time.
			c := newFakeCloud()
			set(c)
			Run(t, configOf(c, func() provider.Driver { return newCorrect(c) }))
		})
	}
}

// The suite fails if too many cases are skipped, but not if the flag -run has selected only some of the cases.
func TestSuiteNeedsMinimumOfCases(t *testing.T) {
	c := newFakeCloud()
	s, err := newSuite(t.Context(), configOf(c, func() provider.Driver { return newCorrect(c) }))
	if err != nil {
		t.Fatal(err)
	}
	all := len(cases())
	if s.MinCases < all/4 || s.MinCases > all {
		t.Errorf("got a default of %d of %d cases, want at least a quarter", s.MinCases, all)
	}
	for _, test := range []struct {
		started, ran int
		fails        bool
	}{{all, all, false}, {all, s.MinCases, false}, {all, s.MinCases - 1, true}, {all - 1, 0, false}} {
		if err := s.tooFew(counts{started: test.started, completed: test.ran}); (err != nil) != test.fails {
			t.Errorf("%d of %d started cases completed: got error %v, want an error: %t", test.ran, test.started, err, test.fails)
		}
	}
}

func TestSummaryCountsResultsAndNamesSkippedCases(t *testing.T) {
	var n counts
	n.add(true, true, true)   // passed
	n.add(true, true, false)  // reported a failure
	n.add(true, false, false) // ended early with a failure
	n.add(true, false, true)  // skipped
	n.add(true, false, true)  // skipped
	n.add(false, false, true) // not selected
	s := &suite{skipped: map[string][]string{"Config does not have Cloud.Copy": {"A", "B"}}}
	want := "conformance: 1 passed, 2 failed, 2 skipped\n  skipped, because Config does not have Cloud.Copy: A, B"
	if got := s.summary(n); got != want || n.completed != 2 || n.started != 5 {
		t.Errorf("got %q and %+v, want %q", got, n, want)
	}
}

type recorder struct {
	ctx context.Context

	mu              sync.Mutex
	failures        []string
	failed, skipped bool
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func record(t *testing.T, c Config, names ...string) *recorder {
	t.Helper()
	s, err := newSuite(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var last *recorder
	for _, name := range names {
		i := slices.IndexFunc(cases(), func(c testCase) bool { return c.name == name })
		if i < 0 {
			t.Fatalf("there is no case %s", name)
		}
		last = &recorder{ctx: t.Context()}
		done := make(chan struct{})
		go func() { // FailNow ends the goroutine.
			defer close(done)
			s.run(last, cases()[i])
		}()
		<-done
	}
	return last
}

func TestCaseWithoutItsHookIsSkippedOrFailsWithFull(t *testing.T) {
	c := newFakeCloud()
	config := configOf(c, func() provider.Driver { return struct{ provider.Driver }{newCorrect(c)} })
	config.Cloud, config.RejectedCredentials, config.MalformedCredentials, config.OtherSpec = Cloud{}, provider.Credentials{}, nil, nil
	config.Legacies = nil
	for _, tc := range cases() {
		config.RequireHooks = false
		lenient := record(t, config, tc.name)
		if want := len(tc.needs) > 0; lenient.skipped != want || lenient.failed {
			t.Errorf("%s, which needs %v: skipped %v, failed %v", tc.name, tc.needs, lenient.skipped, lenient.failures)
		}
		config.RequireHooks = true
		full := record(t, config, tc.name)
		optional := slices.Contains([]requirement{needsAdopter, needsScoper, needsAccounter, needsPooler, needsInterrupter,
			needsImporter, needsFinder, needsPower, needsJoiner},
			slices.Concat(tc.needs, []requirement{""})[0])
		if want := len(tc.needs) > 0 && !optional; full.failed != want {
			t.Errorf("%s, which needs %v, with Full: failures %v", tc.name, tc.needs, full.failures)
		}
	}
	config.RequireHooks = false
	config.Cloud.Inject = func(context.Context, Fault) (func(), error) {
		return nil, fmt.Errorf("no such fault: %w", errors.ErrUnsupported)
	}
	if r := record(t, config, "ThrottlingCloud"); !r.skipped || r.failed {
		t.Errorf("a fault that cannot be injected: skipped %v, failed %v", r.skipped, r.failures)
	}
	config.RequireHooks, config.ImpossibleFaults = true, []FaultKind{Throttled}
	if r := record(t, config, "ThrottlingCloud"); !r.skipped || r.failed {
		t.Errorf("a fault that the cloud never has: skipped %v, failed %v", r.skipped, r.failures)
	}
}

func TestIncompleteConfigurationIsRefused(t *testing.T) {
	c := newFakeCloud()
	for field, remove := range map[string]func(*Config){
		"New":          func(c *Config) { c.New = nil },
		"Class.Spec":   func(c *Config) { c.Class.Spec = nil },
		"InvalidSpecs": func(c *Config) { c.InvalidSpecs = nil },
		"field":        func(c *Config) { c.InvalidSpecs = []InvalidSpec{{Name: "nameless"}} },
	} {
		config := configOf(c, func() provider.Driver { return newCorrect(c) })
		remove(&config)
		if _, err := newSuite(t.Context(), config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestSecretsAreFoundInAnyEncoding(t *testing.T) {
	w := func(r *recorder) *checkedDriver {
		return &checkedDriver{t: &trial{report: r, suite: &suite{}, userDataSecret: "0123456789abcdef"}}
	}
	class := provider.Class{Credentials: provider.NewCredentials(map[string][]byte{
		"token": []byte("hunter2hunter2"),
		"pem":   []byte("-----BEGIN-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX\n-----END-----\n"), "region": []byte("eu"),
	})}
	for text, leaks := range map[string]bool{
		"the token hunter2hunter2 is wrong":               true,
		"header: Basic eDpodW50ZXIyaHVudGVyMg==":          true, // x:hunter2hunter2
		"68756e7465723268756e74657232":                    true,
		"MIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX":            true,
		"user data I2Nsb3VkCiMgMDEyMzQ1Njc4OWFiY2RlZgo=":  true, // #cloud\n# 0123456789abcdef\n
		"no quota in eu, ask for more":                    false,
		"the cloud does not accept the token: [redacted]": false,
	} {
		r := &recorder{ctx: t.Context()}
		w(r).checkNoSecrets("an error", text, class)
		if r.failed != leaks {
			t.Errorf("%q: found %v, want %v", text, r.failed, leaks)
		}
		for _, failure := range r.failures {
			if strings.Contains(failure, "0123456789abcdef") {
				t.Errorf("the report repeats the secret: %s", failure)
			}
		}
	}
}
