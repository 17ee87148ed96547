package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// Run tests a driver, with one subtest for each case. At the end, it logs which cases were skipped, and why.
func Run(t *testing.T, c Config) {
	t.Helper()
	s, err := newSuite(t.Context(), c)
	if err != nil {
		t.Fatalf("conformance: %v", err)
	}
	started, ran := 0, 0
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			started++
			s.run(t, c)
			ran++
		})
	}
	summary := fmt.Sprintf("conformance: %d of %d cases completed, %d were skipped", ran, len(cases()),
		len(s.skipped))
	t.Log(strings.Join(append([]string{summary}, s.skipped...), "\n  "))
	if err := s.tooFew(started, ran); err != nil {
		t.Error(err)
	}
}

// tooFew returns an error if fewer cases completed than the configuration requires. The number does not matter if the
// flag -run has selected only some of the cases.
func (s *suite) tooFew(started, ran int) error {
	if started < len(cases()) || ran >= s.MinCases {
		return nil
	}
	return fmt.Errorf("conformance: only %d of %d cases completed, want at least %d (Config.MinCases)", ran, len(cases()),
		s.MinCases)
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

	needsAdopter     requirement = "provider.Adopter"
	needsScoper      requirement = "provider.Scoper"
	needsAccounter   requirement = "provider.Accounter"
	needsPooler      requirement = "provider.Pooler"
	needsInterrupter requirement = "provider.Interrupter"
	needsImporter    requirement = "provider.Importer"
	needsFinder      requirement = "provider.Finder"
	needsPower       requirement = "provider.Power"
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
		partCases(), acceptedCases(), optionalCases(), powerCases(), lastCases())
}

type suite struct {
	Config
	// initialResources contains the resources of the cloud before the suite ran, or nil without Cloud.Resources.
	initialResources map[string]bool
	skipped          []string
}

func newSuite(ctx context.Context, c Config) (*suite, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &suite{Config: c}
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
	missing := false
	switch n {
	case needsResources:
		missing = t.Cloud.Resources == nil
	case needsLaunch:
		missing = t.Cloud.Launch == nil
	case needsMalformed, needsRejected:
		if t.Class.Credentials.IsEmpty() {
			t.skip("the driver needs no credentials")
		}
		missing = n == needsMalformed && len(t.MalformedCredentials) == 0 || n == needsRejected &&
			t.RejectedCredentials.IsEmpty()
	case needsOtherSpec:
		missing = len(t.OtherSpec) == 0
	case needsNamed:
		missing = t.Cloud.LaunchNamed == nil
	case needsAnnounce:
		missing = t.Cloud.Announce == nil
	case needsLegacies:
		missing = len(t.Legacies) == 0
	case needsLaunchLegacy:
		missing = t.Cloud.LaunchLegacy == nil
	case needsIsOn:
		missing = t.Cloud.IsOn == nil
	case needsTags:
		missing = t.Cloud.Tags == nil
	default:
		missing = t.Cloud.Inject == nil
	}
	if missing {
		t.skipOrFail(n)
	}
}

// skipOrFail ends a case that needs something that the configuration does not have.
func (t *trial) skipOrFail(n requirement) {
	t.Helper()
	if t.RequireHooks {
		t.fatalf("Config.Full is set and %s is missing", n)
	}
	t.skip(fmt.Sprintf("Config does not have %s", n))
}

func (t *trial) skip(why string) {
	t.Helper()
	t.skipped = append(t.skipped, t.name+": "+why)
	t.Logf("skipped: %s", why)
	t.SkipNow()
}
