package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// Run tests a driver: one subtest for each case. It ends with the list of the cases that were skipped, and why.
func Run(t *testing.T, c Config) {
	t.Helper()
	s, err := newSuite(t.Context(), c)
	if err != nil {
		t.Fatalf("conformance: %v", err)
	}
	ran := 0
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			s.run(t, c)
			ran++
		})
	}
	summary := fmt.Sprintf("conformance: %d of %d cases ran to their end, %d were skipped", ran, len(cases()),
		len(s.skipped))
	t.Log(strings.Join(append([]string{summary}, s.skipped...), "\n  "))
}

// report is where a case says what it finds. *testing.T is one; the suite's own tests have another, to see broken
// drivers fail without failing themselves.
type report interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// FailNow and SkipNow end the calling goroutine.
	FailNow()
	SkipNow()
}

// testCase is one thing that a driver is held to.
type testCase struct {
	name string
	// says what is expected, for the authors' guide.
	rule string
	// needs are the hooks and options without which it cannot be tested.
	needs []need
	test  func(*trial)
}

// need is something that a case cannot do without.
type need string

const (
	needsResources    need = "Cloud.Resources"
	needsLaunch       need = "Cloud.Launch"
	needsMalformed    need = "MalformedCredentials"
	needsRejected     need = "RejectedCredentials"
	needsOtherSpec    need = "OtherSpec"
	needsNamed        need = "Cloud.LaunchNamed"
	needsAnnounce     need = "Cloud.Announce"
	needsLegacies     need = "Legacies"
	needsLaunchLegacy need = "Cloud.LaunchLegacy"
	needsTags         need = "Cloud.Tags"

	// needsAdopter and the following are optional interfaces of a driver.
	needsAdopter     need = "provider.Adopter"
	needsScoper      need = "provider.Scoper"
	needsAccounter   need = "provider.Accounter"
	needsInterrupter need = "provider.Interrupter"
	needsImporter    need = "provider.Importer"
)

// implementedBy reports whether the need is for an optional interface, and whether the driver implements it.
func (n need) implementedBy(d provider.Driver) (optional, implemented bool) {
	switch n {
	case needsAdopter:
		_, implemented = d.(provider.Adopter)
	case needsScoper:
		_, implemented = d.(provider.Scoper)
	case needsAccounter:
		_, implemented = d.(provider.Accounter)
	case needsInterrupter:
		_, implemented = d.(provider.Interrupter)
	case needsImporter:
		_, implemented = d.(provider.Importer)
	default:
		return false, false
	}
	return true, implemented
}

// injecting is the need for one kind of fault.
func injecting(kind FaultKind) need { return need("Cloud.Inject: " + string(kind)) }

// cases are all, in the order in which they run.
func cases() []testCase {
	return slices.Concat(classCases(), createCases(), findCases(), deleteCases(), updateCases(), adoptCases(),
		importCases(),
		conductCases(), faultCases(), cutCases(), lateCases(), answerCases(),
		partCases(), acceptedCases(), optionalCases(), lastCases())
}

// suite is one run.
type suite struct {
	Config
	// before is what there was in the cloud before the suite; nil without the hook.
	before  map[string]bool
	skipped []string
}

func newSuite(ctx context.Context, c Config) (*suite, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	s := &suite{Config: c}
	if s.before, err = s.resources(ctx); err != nil {
		return nil, fmt.Errorf("Cloud.Resources: %w", err)
	}
	return s, nil
}

// run runs one case.
func (s *suite) run(r report, c testCase) {
	r.Helper()
	t := &trial{report: r, suite: s, name: c.name, userDataSecret: random(16)}
	t.driver = t.restart()
	for _, n := range c.needs {
		t.require(n)
	}
	// Also when the case ends early.
	defer t.cleanUp()
	c.test(t)
}

// require ends the case where something is missing that is known beforehand. Which faults can be injected shows later.
func (t *trial) require(n need) {
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
		if t.Class.Credentials.Empty() {
			t.skip("the driver needs no credentials")
		}
		missing = n == needsMalformed && len(t.MalformedCredentials) == 0 || n == needsRejected &&
			t.RejectedCredentials.Empty()
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
	case needsTags:
		missing = t.Cloud.Tags == nil
	default:
		missing = t.Cloud.Inject == nil
	}
	if missing {
		t.miss(n)
	}
}

// miss ends a case that something is missing for.
func (t *trial) miss(n need) {
	t.Helper()
	if t.Full {
		t.fatalf("Config.Full is set and %s is missing", n)
	}
	t.skip(fmt.Sprintf("Config has no %s", n))
}

func (t *trial) skip(why string) {
	t.Helper()
	t.skipped = append(t.skipped, t.name+": "+why)
	t.Logf("skipped: %s", why)
	t.SkipNow()
}
