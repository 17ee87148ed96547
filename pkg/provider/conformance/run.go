package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// Run tests a driver, with one subtest for each case. At the end, it logs how many cases passed, failed and were
// skipped, and why they were skipped.
func Run(t *testing.T, c Config) {
	t.Helper()
	s, err := newSuite(t.Context(), c)
	if err != nil {
		t.Fatalf("conformance: %v", err)
	}
	var n counts
	for _, c := range cases() {
		started, completed := false, false
		passed := t.Run(c.name, func(t *testing.T) {
			started = true
			s.run(t, c)
			completed = true
		})
		n.add(started, completed, passed)
	}
	t.Log(s.summary(n))
	if err := s.tooFew(n); err != nil {
		t.Error(err)
	}
}

// counts are the numbers of cases with each result. A case that reported a failure but ran to its end is completed
// and failed.
type counts struct{ started, completed, passed, failed int }

func (n *counts) add(started, completed, passed bool) {
	if !started {
		return // The flag -run has not selected the case.
	}
	n.started++
	switch {
	case completed && passed:
		n.passed++
	case !passed:
		n.failed++
	}
	if completed {
		n.completed++
	}
}

// summary returns the result of the suite: the numbers, and for each reason the names of the skipped cases.
func (s *suite) summary(n counts) string {
	skipped := 0
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(s.skipped)) {
		skipped += len(s.skipped[why])
		lines = append(lines, fmt.Sprintf("skipped, because %s: %s", why, strings.Join(s.skipped[why], ", ")))
	}
	first := fmt.Sprintf("conformance: %d passed, %d failed, %d skipped", n.passed, n.failed, skipped)
	return strings.Join(append([]string{first}, lines...), "\n  ")
}

// tooFew returns an error if fewer cases completed than the configuration requires. The number does not matter if the
// flag -run has selected only some of the cases.
func (s *suite) tooFew(n counts) error {
	if n.started < len(cases()) || n.completed >= s.MinCases {
		return nil
	}
	return fmt.Errorf("conformance: only %d of %d cases completed, want at least %d (Config.MinCases)", n.completed,
		len(cases()), s.MinCases)
}

// report contains the methods of *testing.T that cases use. Tests of the suite use another implementation, so that a
// case can fail for a broken driver without failing the test of the suite.
type report interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// FailNow and SkipNow end the calling goroutine.
	FailNow()
	SkipNow()
}

type testCase struct {
	name string
	// rule is the expectation in the table of docs/reference/conformance.md.
	rule  string
	needs []requirement
	test  func(*trial)
}

// requirement is the name of something that a case requires: a hook or an option in Config, or an optional interface
// of the driver.
type requirement string

const (
	needsResources    requirement = "Cloud.Resources"
	needsLaunch       requirement = "Cloud.Launch"
	needsMalformed    requirement = "MalformedCredentials"
	needsRejected     requirement = "RejectedCredentials"
	needsOtherSpec    requirement = "OtherSpec"
	needsNamed        requirement = "Cloud.LaunchNamed"
	needsAnnounce     requirement = "Cloud.Announce"
	needsLegacies     requirement = "Legacies"
	needsLaunchLegacy requirement = "Cloud.LaunchLegacy"
	needsTags         requirement = "Cloud.Tags"
	needsIsOn         requirement = "Cloud.IsOn"
	needsCopy         requirement = "Cloud.Copy"
	needsUserData     requirement = "Cloud.UserData"
	// needsStop is met by Cloud.Stop, or by a driver that implements provider.Power.
	needsStop requirement = "Cloud.Stop"

	needsAdopter     requirement = "provider.Adopter"
	needsScoper      requirement = "provider.Scoper"
	needsAccounter   requirement = "provider.Accounter"
	needsPooler      requirement = "provider.Pooler"
	needsInterrupter requirement = "provider.Interrupter"
	needsImporter    requirement = "provider.Importer"
	needsFinder      requirement = "provider.Finder"
	needsPower       requirement = "provider.Power"
	needsJoiner      requirement = "provider.Joiner"
)

// implementedBy checks a requirement. optional is true if the requirement is an optional interface of drivers, and
// implemented is true if the driver implements this interface.
func (n requirement) implementedBy(d provider.Driver) (optional, implemented bool) {
	switch n {
	case needsAdopter:
		_, implemented = d.(provider.Adopter)
	case needsScoper:
		_, implemented = d.(provider.Scoper)
	case needsAccounter:
		_, implemented = d.(provider.Accounter)
	case needsPooler:
		_, implemented = d.(provider.Pooler)
	case needsInterrupter:
		_, implemented = d.(provider.Interrupter)
	case needsImporter:
		_, implemented = d.(provider.Importer)
	case needsFinder:
		_, implemented = d.(provider.Finder)
	case needsPower:
		_, implemented = d.(provider.Power)
	case needsJoiner:
		_, implemented = d.(provider.Joiner)
	default:
		return false, false
	}
	return true, implemented
}

func injecting(kind FaultKind) requirement { return requirement("Cloud.Inject: " + string(kind)) }

func cases() []testCase {
	return slices.Concat(classCases(), createCases(), findCases(), deleteCases(), updateCases(), adoptCases(),
		importCases(), finderCases(),
		conductCases(), faultCases(), cutCases(), lateCases(), answerCases(),
		partCases(), acceptedCases(), progressCases(), outsideCases(), optionalCases(), powerCases(), lastCases())
}

type suite struct {
	Config
	// initialResources contains the resources of the cloud before the suite ran, or nil without Cloud.Resources.
	initialResources map[string]bool
	// skipped contains the names of the skipped cases by the reason.
	skipped map[string][]string
	// sawGuestAddress is true if the driver has returned an address that only a guest reported.
	sawGuestAddress atomic.Bool
}

func newSuite(ctx context.Context, c Config) (*suite, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &suite{Config: c, skipped: map[string][]string{}}
	if s.initialResources, err = s.resources(ctx); err != nil {
		return nil, fmt.Errorf("Cloud.Resources: %w", err)
	}
	return s, nil
}

func (s *suite) run(r report, c testCase) {
	r.Helper()
	t := &trial{report: r, suite: s, name: c.name, userDataSecret: random(16)}
	t.driver = t.restart()
	for _, n := range c.needs {
		t.require(n)
	}
	// Clean up even if the case ends early.
	defer t.cleanUp()
	c.test(t)
}

// require skips or fails the case if a hook, an option or an interface is missing. It does not check faults: only the
// call of Cloud.Inject shows whether a fault is supported.
func (t *trial) require(n requirement) {
	t.Helper()
	if optional, implemented := n.implementedBy(t.driver.driver); optional {
		if !implemented {
			t.skip("the driver does not implement " + string(n))
		}
		return
	}
	if (n == needsMalformed || n == needsRejected) && t.Class.Credentials.IsEmpty() {
		t.skip("the driver needs no credentials")
	}
	if t.lacks(n) {
		t.skipOrFail(n)
	}
}

// lacks reports whether the configuration lacks a hook or an option.
func (t *trial) lacks(n requirement) bool {
	switch n {
	case needsResources:
		return t.Cloud.Resources == nil
	case needsLaunch:
		return t.Cloud.Launch == nil
	case needsMalformed:
		return len(t.MalformedCredentials) == 0
	case needsRejected:
		return t.RejectedCredentials.IsEmpty()
	case needsOtherSpec:
		return len(t.OtherSpec) == 0
	case needsNamed:
		return t.Cloud.LaunchNamed == nil
	case needsAnnounce:
		return t.Cloud.Announce == nil
	case needsLegacies:
		return len(t.Legacies) == 0
	case needsLaunchLegacy:
		return t.Cloud.LaunchLegacy == nil
	case needsIsOn:
		return t.Cloud.IsOn == nil
	case needsTags:
		return t.Cloud.Tags == nil
	case needsCopy:
		return t.Cloud.Copy == nil
	case needsUserData:
		return t.Cloud.UserData == nil
	case needsStop:
		_, switches := t.driver.driver.(provider.Power)
		return t.Cloud.Stop == nil && !switches
	}
	return t.Cloud.Inject == nil
}

// skipOrFail ends a case that needs something that the configuration does not have.
func (t *trial) skipOrFail(n requirement) {
	t.Helper()
	if slices.Contains(t.MissingHooks, string(n)) {
		t.skip("Config.MissingHooks contains " + string(n))
	}
	if t.RequireHooks {
		t.fatalf("Config.RequireHooks is set and %s is missing", n)
	}
	t.skip(fmt.Sprintf("Config does not have %s", n))
}

func (t *trial) skip(why string) {
	t.Helper()
	t.skipped[why] = append(t.skipped[why], t.name)
	t.Logf("skipped: %s", why)
	t.SkipNow()
}
