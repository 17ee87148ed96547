package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/providers/aws/fakeaws"
	"machinist.dev/machinist/providers/aws/machine/sample"
)

func TestTheDriverConforms(t *testing.T) {
	const moment = 20 * time.Millisecond
	for name, change := range map[string]func(*fakeaws.Options){
		"at once": nil,
		"lists lag, slow operations": func(o *fakeaws.Options) {
			o.BootDuration, o.StopDuration, o.TerminateDuration = moment, moment, moment
			o.Semantics.ListLag, o.Semantics.ClockSkew = 3*moment, 20*time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newCloud(t, change).conforms(86)
		})
	}
}

// conforms runs the conformance suite.
func (c *cloud) conforms(minCases int) {
	huge := &hugeAnswers{RoundTripper: c.transport}
	c.transport = huge
	// EC2 has none of these faults. Its IDs have one spelling, tags and parts are created with the instance, guests
	// report no addresses, and a failed operation does not change the state. An instance that is accepted and then
	// fails for lack of capacity leaves nothing: see TestLaunchFailureIsReportedWithTheCreateHandle.
	impossible := []conformance.FaultKind{conformance.OtherCase, conformance.UntaggedParts, conformance.GuestClaims,
		conformance.OperationFails, conformance.PartsReserved, conformance.GivesUp}
	conformance.Run(c.T, conformance.Config{
		New:   func() (provider.Driver, error) { return c.driver(), nil },
		Class: class(),
		OtherSpec: sample.Spec("instanceType", "m6i.xlarge", "resize", "StopAndStart", "tags.team", "green",
			"rootVolume.sizeGiB", 30),
		InvalidSpecs: []conformance.InvalidSpec{
			{Name: "no region", Spec: sample.Spec("region", nil), Field: "region"},
			{Name: "no subnet", Spec: sample.Spec("subnet", nil), Field: "subnet"},
			{Name: "reserved tag", Spec: sample.Spec("tags.machinist-cluster", "x"), Field: "tags"},
		},
		MalformedCredentials: []provider.Credentials{
			secretWith("accessKeyID", "no key"), secretWith("secretAccessKey", "two words"),
			secretWith("secretAccessKey", ""), secretWith("roleARN", "role/x"), secretWith("password", "x"),
			secretWith("processIdentity", "true"), secretWith("externalID", "x1"),
		},
		RejectedCredentials: secretWith("secretAccessKey", "not+the+secret+of+the+access+key/0000000"),
		PublicCredentials:   []string{"accessKeyID"},
		Version:             "v1.36.3",
		Instances:           7, // more than one page
		Timeout:             time.Minute,
		RequireHooks:        true,
		MinCases:            minCases,
		ImpossibleFaults:    impossible,
		Cloud: conformance.Cloud{
			IsOn: func(_ context.Context, providerID string) (bool, error) {
				state := c.State(path.Base(providerID))
				return state == "running" || state == "pending" || state == "stopping", nil
			},
			Tags: func(_ context.Context, providerID string) (map[string]string, error) {
				return c.Tags(path.Base(providerID)), nil
			},
			Resources: func(context.Context) ([]string, error) { return c.Resources(), nil },
			Launch:    c.launch,
			LaunchNamed: func(ctx context.Context, _ provider.Instance, tags map[string]string) (string,
				func(context.Context) error, error) {
				return c.launch(ctx, tags)
			},
			Announce: func(_ context.Context, providerID string, at time.Time) (func(context.Context) error, error) {
				withdraw := c.Schedule(path.Base(providerID), "instance-retirement", at)
				return func(context.Context) error { withdraw(); return nil }, nil
			},
			Inject: func(_ context.Context, f conformance.Fault) (func(), error) {
				if f.Kind == conformance.HugeAnswers {
					huge.on.Store(true)
					return func() { huge.on.Store(false) }, nil
				}
				return c.inject(f)
			},
		},
	})
	c.nothingLeft()
}

// launch creates an adoptable instance without the driver.
func (c *cloud) launch(_ context.Context, tags map[string]string) (string, func(context.Context) error, error) {
	all := map[string]string{"machinist-adoptable": "true"}
	maps.Copy(all, tags)
	id, zone := c.Launch(all)
	return "aws:///" + zone + "/" + id, func(context.Context) error { c.Terminate(id); return nil }, nil
}

// hugeAnswers appends 256 MiB of white space to all responses.
type hugeAnswers struct {
	http.RoundTripper
	on atomic.Bool
}

func (h *hugeAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.RoundTripper.RoundTrip(r)
	if err != nil || !h.on.Load() {
		return response, err
	}
	response.ContentLength = -1
	response.Header.Del("Content-Length")
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(whiteSpace{}, 256<<20), response.Body), response.Body}
	return response, nil
}

type whiteSpace struct{}

func (whiteSpace) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// alter changes the semantics of the fake AWS. It returns a function that restores the previous semantics.
func (c *cloud) alter(begin, end func(*fakeaws.Semantics)) (func(), error) {
	c.Adjust(func(o *fakeaws.Options) { begin(&o.Semantics) })
	return func() { c.Adjust(func(o *fakeaws.Options) { end(&o.Semantics) }) }, nil
}

func (c *cloud) inject(f conformance.Fault) (func(), error) {
	type semantics = fakeaws.Semantics
	switch f.Kind {
	case conformance.LateReads:
		return c.alter(func(s *semantics) { s.ReadLag = f.Duration }, func(s *semantics) { s.ReadLag = 0 })
	case conformance.LateLists:
		var before time.Duration
		return c.alter(func(s *semantics) { before, s.ListLag = s.ListLag, max(s.ListLag, f.Duration) },
			func(s *semantics) { s.ListLag = before })
	case conformance.LateTags:
		return c.alter(func(s *semantics) { s.TagLag = f.Duration }, func(s *semantics) { s.TagLag = 0 })
	case conformance.UnsteadyLists:
		return c.alter(func(s *semantics) { s.ListsRepeat, s.ListsTurn = true, true },
			func(s *semantics) { s.ListsRepeat, s.ListsTurn = false, false })
	case conformance.StateGoesBack:
		return c.alter(func(s *semantics) { s.StateFlickers = true }, func(s *semantics) { s.StateFlickers = false })
	case conformance.FiltersIgnored:
		return c.alter(func(s *semantics) { s.FiltersIgnored = true }, func(s *semantics) { s.FiltersIgnored = false })
	case conformance.PowerOffIgnored:
		return c.alter(func(s *semantics) { s.GuestsIgnoreStop = true }, func(s *semantics) { s.GuestsIgnoreStop = false })
	case conformance.PartsRemain:
		c.KeepParts()
		return func() {}, nil
	case conformance.PartsInUse:
		c.KeepParts()
		return c.alter(func(s *semantics) { s.PartsInUse = f.Duration }, func(s *semantics) { s.PartsInUse = 0 })
	case conformance.PartsGoneFirst:
		c.DropParts(provider.TagCluster)
		return func() {}, nil
	case conformance.QuotaFreesLate:
		return c.FreezeQuota(f.Duration), nil
	}
	fault := fakeaws.Fault{Action: "*"}
	switch f.Kind {
	case conformance.LostCreate:
		fault.Action, fault.LoseAnswer = "RunInstances", true
	case conformance.Unavailable:
		fault.Skip, fault.Status, fault.Code = f.Skip, http.StatusServiceUnavailable, "Unavailable"
	case conformance.DoneLate:
		fault.Writes, fault.Skip, fault.Late, fault.Status, fault.Code = true, f.Skip, f.Duration,
			http.StatusInternalServerError, "InternalError"
	case conformance.Throttled:
		fault.Status, fault.Code, fault.RetryAfter = http.StatusServiceUnavailable, "RequestLimitExceeded",
			int(f.RetryAfter.Seconds())
	case conformance.NoCapacityToStart:
		fault.Action, fault.Status, fault.Code = "StartInstances", http.StatusInternalServerError,
			"InsufficientInstanceCapacity"
	case conformance.Exhausted:
		fault.Action, fault.Status, fault.Code = "RunInstances", http.StatusInternalServerError,
			"InsufficientInstanceCapacity"
	case conformance.Unauthenticated:
		fault.Skip, fault.Status, fault.Code = f.Skip, http.StatusUnauthorized, "AuthFailure"
	case conformance.PermissionDenied:
		fault.Status, fault.Code = http.StatusForbidden, "UnauthorizedOperation"
	case conformance.Hanging:
		fault.Hang = true
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	return c.Inject(fault), nil
}
