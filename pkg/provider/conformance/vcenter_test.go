package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

func claimed() []corev1.NodeAddress {
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: claimedAddress}}
}

// vCenter is a driver without provider.Power for a cloud like vCenter: creations are tasks, each call needs a
// session, and an administrator can clone an instance with its tags.
type vCenter struct {
	provider.Driver
	settle time.Duration
}

// CreateSettle implements provider.Settler.
func (v vCenter) CreateSettle() time.Duration { return v.settle }

// TestPlantedBugsAreFound plants bugs that authors of drivers have made. Each must be found although the fake of the
// cloud makes every change at once, as most fakes do.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, bug := range []flaw{
		{name: "Create is not idempotent", caseName: "CreationInProgress", with: randomToken,
			rule: "a repeated Create while the cloud creates the instance returns"},
		{name: "Delete reports Gone early", caseName: "SlowDelete", with: deletesEarly,
			rule: "while the cloud takes its time"},
		{name: "List omits stopped instances", caseName: "StoppedInstances", with: omitsStopped,
			rule: "List shows the instance that is off"},
		{name: "the user data is never delivered", caseName: "UserDataArrives", with: dropsUserData,
			rule: "the guest gets 0 bytes"},
		{name: "an expired session is never replaced", caseName: "SessionsEnd", with: keepsSessions,
			rule: "fails twice after the end of all sessions"},
		{name: "tags need a valid class", caseName: "InvalidClassFindsInstances", with: needsValidClass,
			rule: "with a class that Validate refuses"},
		{name: "copies count", caseName: "CopiesAreNotOurs", with: countsCopies,
			rule: "returns the cluster and the UID of the machine"},
		{name: "properties that may not be read count as absent", caseName: "PartlyUnreadable", with: ignoresOmissions,
			rule: "want the instance or another error"},
		{name: "an update needs the drain twice", caseName: "DrainAlternates", with: drainsTwice,
			rule: "must not wait for another drain"},
		{name: "disks remain", caseName: "PartsRemain", with: func(b *broken) { b.disks = false }, rule: "leaves [disk/"},
		{name: "Delete ignores the owner", caseName: "DeleteRefusesOthers",
			rule: "want an error with code FailedPrecondition",
			with: func(b *broken) {
				b.requiredTags = func(string, provider.Machine) map[string]string { return nil }
			}},
		{name: "List returns only the first page", caseName: "ListGoesThroughAllPages", rule: "List does not",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, err := b.correct.List(ctx, req)
					page.Continue = ""
					return page, err
				}
			}},
		{name: "an unreachable cloud has no instances", caseName: "UnavailableCloud",
			rule: "Get by tags during the fault Unavailable: NotFound",
			with: func(b *broken) { code(b, provider.Unavailable, provider.NotFound) }},
		{name: "the error of the cloud is shown", caseName: "SecretsStaySecret", rule: "contains", with: func(b *broken) {
			before := b.translate
			b.translate = func(err error) error {
				out := before(err)
				if e, ok := errors.AsType[*provider.Error](out); ok && err != nil {
					e.Message = err.Error()
				}
				return out
			}
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			config := func(with func(*broken), settle, timeout time.Duration) Config {
				c := newFakeCloud()
				immediate(c)
				c.bootReads = 1
				config := configOf(c, func() provider.Driver {
					b := newBroken(c)
					with(b)
					return vCenter{b, settle}
				})
				config.Timeout = timeout
				return config
			}
			report := record(t, config(func(*broken) {}, time.Minute, time.Minute), bug.caseName)
			if report.failed || report.skipped {
				t.Fatalf("%s without the bug: skipped %v, failures %v", bug.caseName, report.skipped, report.failures)
			}
			report = record(t, config(bug.with, 20*time.Millisecond, time.Second), bug.caseName)
			if all := strings.Join(report.failures, "\n"); !strings.Contains(all, bug.rule) {
				t.Errorf("want a failure of %s that contains %q, got:\n%s", bug.caseName, bug.rule, all)
			}
		})
	}
}
