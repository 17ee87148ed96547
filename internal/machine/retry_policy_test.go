package machine

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: retry-policy-by-code.
func TestCreateRetryPolicies(t *testing.T) {
	for _, tc := range []struct {
		code     provider.Code
		reason   string
		terminal bool
		first    time.Duration
		most     time.Duration
	}{
		{provider.InvalidArgument, v1beta1.ReasonInvalidConfiguration, false, 10 * time.Minute, 30 * time.Minute},
		{provider.FailedPrecondition, v1beta1.ReasonInvalidConfiguration, false, 10 * time.Minute, 30 * time.Minute},
		{provider.Unimplemented, v1beta1.ReasonInvalidConfiguration, true, 0, 0},
		{provider.ResourceExhausted, v1beta1.ReasonInsufficientResources, false, time.Minute, 10 * time.Minute},
		{provider.Unauthenticated, v1beta1.ReasonCredentialsRefused, false, 30 * time.Second, 10 * time.Minute},
		{provider.Unavailable, v1beta1.ReasonProviderUnavailable, false, time.Second, 5 * time.Minute},
		{provider.Unknown, v1beta1.ReasonCreateFailed, false, time.Second, 5 * time.Minute},
		{provider.Aborted, v1beta1.ReasonCreateFailed, false, time.Second, 5 * time.Minute},
	} {
		t.Run(string(tc.code), func(t *testing.T) {
			c := createRetryPolicy(tc.code)
			if c.reason != tc.reason || c.terminal() != tc.terminal {
				t.Fatalf("the policy is %+v", c)
			}
			if tc.terminal {
				return
			}
			within(t, "the first wait", c.backoff(1, 0, "m"), tc.first, tc.first*5/4)
			within(t, "the hundredth wait", c.backoff(100, 0, "m"), tc.most, tc.most*5/4)
		})
	}
}

// Rule: retry-policy-by-code.
func TestProviderGuideDocumentsTheRetryPolicies(t *testing.T) {
	guide, err := os.ReadFile("../../docs/provider-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	message := map[provider.Code]string{}
	for line := range strings.Lines(string(guide)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, code := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cells[1], -1) {
				message[provider.Code(code[1])] = cells[3]
			}
		}
	}
	bounds := regexp.MustCompile(`(\d+)(?: (second|minute)s?)? to (\d+) minutes`)
	for _, code := range []provider.Code{
		provider.InvalidArgument, provider.FailedPrecondition, provider.Unimplemented, provider.ResourceExhausted,
		provider.Unauthenticated,
		provider.PermissionDenied, provider.Throttled, provider.Unavailable, provider.DeadlineExceeded, provider.Aborted,
		provider.Canceled,
		provider.Internal, provider.Unknown,
	} {
		c, found := createRetryPolicy(code), bounds.FindStringSubmatch(message[code])
		if c.terminal() {
			if !strings.Contains(message[code], "no retry") {
				t.Errorf("%s is not tried again, but the guide says %q", code, message[code])
			}
			continue
		}
		if found == nil {
			t.Errorf("%s is tried again from %s to %s, but the guide says %q", code, c.minBackoff, c.maxBackoff, message[code])
			continue
		}
		unit := time.Minute
		if found[2] == "second" {
			unit = time.Second
		}
		first, _ := strconv.Atoi(found[1])
		most, _ := strconv.Atoi(found[3])
		if time.Duration(first)*unit != c.minBackoff || time.Duration(most)*time.Minute != c.maxBackoff {
			t.Errorf("%s is tried again from %s to %s, but the guide says %q", code, c.minBackoff, c.maxBackoff, message[code])
		}
	}
}

// Rule: deletion-never-gives-up.
func TestDeletionNeverGivesUp(t *testing.T) {
	for _, code := range []provider.Code{provider.InvalidArgument, provider.FailedPrecondition, provider.Unimplemented,
		provider.Unauthenticated, provider.Unknown, provider.NotFound} {
		if deleteRetryPolicy(code).terminal() {
			t.Errorf("%s ends the deletion of an instance", code)
		}
	}
}

// Rule: retry-policy-by-code.
func TestBackoff(t *testing.T) {
	c := createRetryPolicy(provider.Unavailable)
	if got := c.backoff(1, time.Hour, "m"); got != time.Hour {
		t.Errorf("backoff = %s, but the cloud asked for 1h", got)
	}
	if first, second := c.backoff(3, 0, "m"), c.backoff(3, 0, "m"); first != second {
		t.Error("the jitter of one machine changes between passes")
	}
	spread := map[time.Duration]bool{}
	for i := range 100 {
		spread[c.backoff(5, 0, fmt.Sprint("machine-", i))] = true
	}
	if len(spread) < 90 {
		t.Errorf("100 machines that failed together are retried at only %d different times", len(spread))
	}
	for n := int32(1); n < 12; n++ {
		within(t, fmt.Sprintf("wait %d", n), c.backoff(n, 0, "m"), min(time.Second<<(n-1), 5*time.Minute),
			min(time.Second<<(n-1), 5*time.Minute)*5/4)
	}
}

func within(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s is %s, want %s to %s", what, got, low, high)
	}
}
