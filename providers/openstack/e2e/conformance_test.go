//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/driver"
	"machinist.dev/machinist/providers/openstack/faulty"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

// The suite runs against the real services. The transport simulates faults that the services cannot produce within
// seconds.
func TestTheDriverConforms(t *testing.T) {
	if !fullRun() && os.Getenv(configFile) == "" {
		t.Skip("neither FULL nor " + configFile + " is set")
	}
	cloudsYAML := cloudsYAML(t)
	raw, err := os.ReadFile(cloudsYAML)
	if err != nil {
		t.Fatal(err)
	}
	member := open(t, cloudsYAML, "machinist")
	admin := open(t, cloudsYAML, "admin")
	member.checkLeavesNothing(t)
	loopback := endpoints.Rules{}.AllowHosts("127.0.0.1")
	transport := &faulty.Transport{Base: httpapi.Transport(loopback)}
	credentials := func(changes ...string) provider.Credentials {
		text := strings.NewReplacer(changes...).Replace(string(raw))
		return provider.NewCredentials(map[string][]byte{"clouds.yaml": []byte(text), "cloud": []byte("machinist")})
	}
	old, err := newOldSystems(t.Context(), member, cloudsYAML)
	if err != nil {
		t.Fatal(err)
	}
	legacies, err := old.legacies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var launched atomic.Int64
	conformance.Run(t, conformance.Config{
		New: func() (provider.Driver, error) {
			return driver.New(driver.Options{PlainHTTP: true, Transport: transport, Endpoints: loopback,
				CreateSettle: 20 * time.Second})
		},
		Class:     provider.Class{Spec: sample.Spec(), Credentials: credentials()},
		OtherSpec: sample.Spec("flavor", "m1.medium", "rootVolume", map[string]any{"sizeGiB": 20}),
		InvalidSpecs: []conformance.InvalidSpec{
			{Name: "no flavor", Spec: sample.Spec("flavor", nil), Field: "flavor"},
			{Name: "no port", Spec: sample.Spec("ports", []any{}), Field: "ports"},
			{Name: "reserved metadata", Spec: sample.Spec("metadata.machinist-cluster", "x"), Field: "metadata"},
		},
		MalformedCredentials: []provider.Credentials{
			provider.NewCredentials(map[string][]byte{"password": []byte("what is this")}),
			provider.NewCredentials(map[string][]byte{"clouds.yaml": []byte("no: clouds")}),
			provider.NewCredentials(map[string][]byte{"authURL": []byte("http://127.0.0.1/v3")}),
			credentials("auth_url: http", "auth_url: file"),
			credentials("username: machinist", "cacert: /etc/passwd"),
		},
		RejectedCredentials: credentials("password: machinist", "password: not-the-password"),
		// The password of the test is a name that occurs everywhere.
		PublicCredentials: []string{"cloud", "clouds.yaml", "authURL", "username", "password", "domainName", "tenantName"},
		Legacies:          legacies,
		CollectorTags:     []string{"kubernetes.io-role-node"},
		Version:           "v1.36.3",
		Timeout:           3 * time.Minute,
		Instances:         3,
		RequireHooks:      true,
		MinCases:          103,
		ImpossibleFaults: []conformance.FaultKind{conformance.OtherCase, conformance.GuestClaims,
			// Nova stops a server if its guest does not shut down. A server that is off keeps its place.
			conformance.PowerOffIgnored, conformance.NoCapacityToStart,
			// A member of a project may read the metadata of all its servers.
			conformance.PartlyUnreadable},
		// OpenStack cannot clone a server with its metadata, and shows user data only to administrators.
		MissingHooks: []string{"Cloud.Copy", "Cloud.UserData"},
		Cloud: conformance.Cloud{
			Resources: member.Resources,
			IsOn:      member.isOn,
			Tags:      member.tags,
			Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
				metadata := map[string]string{"machinist-adoptable": "true"}
				for key, value := range tags {
					metadata[key] = value
				}
				return member.createServer(ctx, fmt.Sprintf("another-%d", launched.Add(1)), metadata)
			},
			LaunchNamed: func(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
				func(context.Context) error, error) {
				return member.createServer(ctx, gone.NodeName, tags)
			},
			LaunchLegacy: old.launch,
			Inject: func(ctx context.Context, f conformance.Fault) (func(), error) {
				return inject(ctx, transport, member, admin, f)
			},
		},
	})
	transport.Wait()
}

// inject activates a fault and returns a function that removes it.
func inject(ctx context.Context, transport *faulty.Transport, member, admin project,
	f conformance.Fault) (func(), error) {
	every := func(response func() *http.Response) func(faulty.Call) *http.Response {
		return func(faulty.Call) *http.Response { return response() }
	}
	unavailable := func() *http.Response {
		return faulty.ErrorAnswer(http.StatusServiceUnavailable, "serviceUnavailable", "The server is currently unavailable.")
	}
	var r faulty.Rule
	switch f.Kind {
	case conformance.LostCreate:
		r.LosesAnswer = faulty.Call.CreatesServer
	case conformance.Unavailable:
		r.Skip, r.Answer = f.Skip, every(unavailable)
	case conformance.Throttled:
		r.Answer = every(func() *http.Response {
			var headers []string
			if f.RetryAfter > 0 {
				headers = []string{"Retry-After", fmt.Sprint(int(f.RetryAfter.Seconds()))}
			}
			return faulty.ErrorAnswer(http.StatusTooManyRequests, "overLimit", "Too many requests.", headers...)
		})
	case conformance.Exhausted:
		r.Answer = func(c faulty.Call) *http.Response {
			if !c.CreatesServer() {
				return nil
			}
			return faulty.ErrorAnswer(http.StatusForbidden, "forbidden", "Quota exceeded for instances: Requested 1")
		}
	case conformance.Unauthenticated:
		r.Skip = f.Skip
		r.Answer = every(func() *http.Response {
			return faulty.ErrorAnswer(http.StatusUnauthorized, "error", "The request you have made requires authentication.")
		})
	case conformance.SessionsEnd:
		var ended atomic.Bool
		ended.Store(true)
		r.Answer = func(c faulty.Call) *http.Response {
			if c.SignsIn() {
				ended.Store(false)
			}
			if !ended.Load() {
				return nil
			}
			return faulty.ErrorAnswer(http.StatusUnauthorized, "error", "The request you have made requires authentication.")
		}
	case conformance.SlowEffects:
		return func() {}, nil // Every change takes longer than the fault requires.
	case conformance.PermissionDenied:
		r.Answer = every(func() *http.Response {
			return faulty.ErrorAnswer(http.StatusForbidden, "forbidden", "Policy doesn't allow it to be performed.")
		})
	case conformance.Hanging:
		r.Hang = true
	case conformance.LateReads:
		r.LateReads = f.Duration
	case conformance.LateLists:
		r.LateLists = f.Duration
	case conformance.LateTags:
		r.LateMetadata = f.Duration
	case conformance.UnsteadyLists:
		r.UnsteadyLists = true
	case conformance.StateGoesBack:
		r.GoesBack = true
	case conformance.DoneLate:
		r.Skip, r.ExecuteAfter = f.Skip, f.Duration
		r.Answer = func(c faulty.Call) *http.Response {
			if !c.Writes() {
				return nil
			}
			return unavailable()
		}
	case conformance.QuotaFreesLate:
		// The ports and volumes of a server are deleted some seconds after the server.
		r.QuotaFreesLate = f.Duration + 5*time.Second
	case conformance.HugeAnswers:
		r.Pad = 256 << 20
	case conformance.FiltersIgnored:
		r.NoFilters = true
	case conformance.PartsInUse:
		r.PartsInUse = f.Duration
	case conformance.GivesUp:
		var err error
		if r.Flavor, err = member.flavor(ctx, "impossible"); err != nil {
			return nil, err
		}
	case conformance.PartsRemain, conformance.UntaggedParts:
		return func() {}, nil // Ports always remain, and never have the tags of the call that creates them.
	case conformance.PartsGoneFirst:
		return func() {}, member.dropParts(ctx, provider.TagCluster)
	case conformance.OperationFails:
		return func() {}, admin.failOperations(ctx, provider.TagCluster)
	case conformance.PartsReserved:
		return admin.removeQuota(ctx, member.ID)
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	return transport.Inject(r), nil
}
