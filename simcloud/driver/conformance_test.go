package driver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/simcloud/fault"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
	"machinist.dev/machinist/simcloud/server"
)

func TestTheDriverConforms(t *testing.T) {
	const lag = simcloud.Duration(60 * time.Millisecond)
	for name, settings := range map[string]simcloud.Settings{
		"reads follow writes":         {},
		"reads lag behind writes":     {ReadLag: lag},
		"lists and tags lag":          {Semantics: simcloud.Semantics{ListLag: lag, TagLag: 2 * lag}},
		"lists repeat":                {Semantics: simcloud.Semantics{ListRepeats: true}},
		"names in upper case":         {Semantics: simcloud.Semantics{OtherCase: true}},
		"addresses outlive instances": {Semantics: simcloud.Semantics{KeepAddresses: true}},
		"the clock is behind":         {Semantics: simcloud.Semantics{ClockOffset: simcloud.Duration(-10 * time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLiveSim(t, settings)
			minCases := 105
			// The simulated cloud never deletes an address before its instance. An operation on a running instance
			// either succeeds or changes nothing. Each address is created with its instance.
			never := []conformance.FaultKind{conformance.PartsGoneFirst, conformance.OperationFails,
				conformance.UntaggedParts, conformance.PartsReserved,
				// Each call sends the token of the account, and an answer contains all tags or none.
				conformance.SessionsEnd, conformance.PartlyUnreadable}
			if settings != (simcloud.Settings{}) {
				// The length of answers does not depend on these settings.
				never, s.withoutHugeAnswers = append(never, conformance.HugeAnswers), true
				minCases--
			}
			conformance.Run(t, conformance.Config{
				New: func() (provider.Driver, error) {
					// With small pages, every list in the suite has several pages.
					return driver.New(driver.Options{Endpoints: []string{s.url}, CreateSettle: 5 * time.Second, PageSize: 2})
				},
				Class:     class(),
				OtherSpec: spec("instanceType", "large"),
				InvalidSpecs: []conformance.InvalidSpec{
					{Name: "no region", Spec: spec("region", ""), Field: "region", HidesLocation: true},
					{Name: "an image that is not a valid name", Spec: spec("image", "Sim OS"), Field: "image"},
					{Name: "an endpoint that is not allowed", Spec: spec("endpoint", "http://169.254.169.254"), Field: "endpoint",
						HidesLocation: true},
				},
				MalformedCredentials: []provider.Credentials{
					credentials(""), credentials("two words"), credentials("line\nline"),
					provider.NewCredentials(map[string][]byte{"password": []byte("the wrong key")}),
				},
				RejectedCredentials: credentials("token-of-nobody"),
				Version:             "v1.36.3",
				Timeout:             time.Minute,
				ReadLag:             2 * time.Duration(settings.ReadLag),
				RequireHooks:        true,
				MinCases:            minCases,
				ImpossibleFaults:    never,
				UserDataLimit:       simcloud.MaxUserDataBytes,
				// A copy by a customer has the same tags as the original, and the cloud does not report which came first.
				MissingHooks:  []string{"Cloud.Copy"},
				Legacies:      simLegacies(),
				CollectorTags: []string{driver.LegacyTagRole},
				Cloud: conformance.Cloud{Resources: s.resources, Launch: s.launch, LaunchNamed: s.launchNamed, Inject: s.inject,
					LaunchLegacy: s.launchLegacy, Tags: s.tagsOf, IsOn: s.isOn, UserData: s.guests.userData},
			})
		})
	}
}

// newLiveSim returns a cloud with a real clock and short boot and shutdown times.
func newLiveSim(t *testing.T, settings simcloud.Settings) *sim {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	must(t, err)
	c := catalog.Default()
	c.Accounts = []catalog.Account{{Name: "alice", Token: token}}
	moment := simcloud.Duration(20 * time.Millisecond)
	c.Settings.BootTime, c.Settings.RebootTime = moment, moment
	c.Settings.StopTime, c.Settings.ShutdownTime = moment, moment
	c.Settings.ReadLag, c.Settings.Semantics = settings.ReadLag, settings.Semantics
	guests := &guests{data: map[string][]byte{}}
	simulated, err := cloud.New(cloud.Options{Catalog: c, Journal: j, Hosts: guests})
	must(t, err)
	rules, err := fault.Load(j)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); simulated.Run(ctx) }()
	web := httptest.NewServer(server.New(ctx, server.Options{Cloud: simulated, Rules: rules, AdminToken: "admin"}))
	t.Cleanup(func() { stop(); web.Close(); <-ran; _ = j.Close() })
	s := &sim{T: t, url: web.URL, guests: guests}
	s.client, err = simcloud.New(simcloud.Config{Endpoint: web.URL, Token: token})
	must(t, err)
	s.admin, err = simcloud.NewAdmin(simcloud.Config{Endpoint: web.URL, Token: "admin"})
	must(t, err)
	return s
}

// guests records the user data that the cloud gives to the guests of instances, by provider ID.
type guests struct {
	noHosts
	mu   sync.Mutex
	data map[string][]byte
}

func (g *guests) Start(s host.Spec, _ host.Reporter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.data[strings.ToLower(s.ProviderID)] = s.UserData
}

func (g *guests) userData(_ context.Context, providerID string) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	data, started := g.data[providerID]
	if !started {
		return nil, fmt.Errorf("the guest of %s was not started", providerID)
	}
	return data, nil
}

// resources returns all addresses and all instances that are not terminated, as the operator of the cloud sees them.
func (s *sim) resources(ctx context.Context) ([]string, error) {
	dump, err := s.admin.Dump(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, r := range dump.Records {
		if r.State == simcloud.StateShuttingDown {
			// The dump may not yet show that the instance has terminated. Adding a fault updates the record at once,
			// and does not affect an instance that is shutting down.
			current, err := s.admin.AddInstanceFault(ctx, r.ID, simcloud.InstanceFault{Kind: simcloud.FaultRecovers})
			if err != nil {
				return nil, err
			}
			r = *current
		}
		if r.AddressInUse {
			all = append(all, "address/"+r.PrivateIPs[0])
		}
		if r.State == simcloud.StateTerminated {
			continue
		}
		all = append(all, "instance/"+r.ID)
		for _, ip := range r.PrivateIPs {
			all = append(all, "address/"+ip)
		}
		for _, d := range r.Disks {
			all = append(all, "disk/"+r.ID+"/"+d.Name)
		}
	}
	return all, nil
}

func (s *sim) launch(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
	return s.launchNamed(ctx, provider.Instance{}, tags)
}

func (s *sim) launchNamed(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
	func(context.Context) error, error) {
	in, err := s.client.CreateInstance(ctx, simcloud.CreateInstanceRequest{Name: gone.NodeName, Region: "sim-1",
		Type: "small", Image: "sim-os-1", Tags: tags})
	if err != nil {
		return "", nil, err
	}
	return strings.ToLower(in.ProviderID), func(ctx context.Context) error {
		if _, err := s.client.DeleteInstance(ctx, in.ID); err != nil {
			return err
		}
		address := "a-" + strings.TrimPrefix(strings.ToLower(in.ID), "i-")
		// The address is in use until the instance is terminated.
		for {
			err := s.client.DeleteAddress(ctx, address)
			if code := simcloud.CodeOf(err); code == simcloud.CodeNotFound {
				return nil
			} else if code != simcloud.CodeConflict {
				return err
			}
		}
	}, nil
}

// simLegacies returns descriptions in the formats of all old systems. If the format includes the credentials, they
// contain the account's token.
func simLegacies() (all []provider.Legacy) {
	for _, source := range provider.Sources() {
		old := legacyOf(source, oldSpec)
		if source == provider.SourceOpenShift {
			old = legacyOf(source, `{"apiVersion":"v1","kind":"Old",`+oldSpec[1:])
		}
		if source == provider.SourceClusterAPI {
			old = legacyOf(source, `{"clusterName":"one","failureDomain":"sim-1a","clusterStatus":{"network":{"id":"a"}},`+
				`"cluster":{"region":"sim-1","identityRef":{"name":"token"}},"machine":`+oldSpec+`}`)
			old.Provider = driver.Kind
		}
		if source == provider.SourceMachineK8s {
			old = legacyOf(source, `{"credentials":{"token":"`+token+`"},`+oldSpec[1:])
			old.Credentials = provider.Credentials{}
		}
		all = append(all, old)
	}
	return all
}

func (s *sim) launchLegacy(ctx context.Context, old provider.Legacy, name string, uid types.UID) (string,
	func(context.Context) error, error) {
	tags := map[string]string{driver.LegacyTagMachine: name, driver.LegacyTagMachineUID: string(uid), "team": "blue"}
	if old.Source == provider.SourceGardener {
		tags[driver.LegacyTagRole] = "node"
	}
	return s.launch(ctx, tags)
}

func (s *sim) tagsOf(ctx context.Context, providerID string) (map[string]string, error) {
	dump, err := s.admin.Dump(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range dump.Records {
		if strings.EqualFold(r.ProviderID, providerID) {
			return r.Tags, nil
		}
	}
	return nil, fmt.Errorf("no instance with provider ID %s", providerID)
}

func (s *sim) isOn(ctx context.Context, providerID string) (bool, error) {
	dump, err := s.admin.Dump(ctx)
	if err != nil {
		return false, err
	}
	for _, r := range dump.Records {
		if strings.EqualFold(r.ProviderID, providerID) {
			return r.State != simcloud.StateStopped && r.State != simcloud.StateTerminated, nil
		}
	}
	return false, nil
}

// ignoreShutdown makes all existing guests ignore requests to shut down.
func (s *sim) ignoreShutdown(ctx context.Context) error {
	dump, err := s.admin.Dump(ctx)
	if err != nil {
		return err
	}
	for _, r := range dump.Records {
		ignores := simcloud.InstanceFault{Kind: simcloud.FaultIgnoresShutdown}
		if _, err := s.admin.AddInstanceFault(ctx, r.ID, ignores); err != nil {
			return err
		}
	}
	return nil
}

func (s *sim) inject(ctx context.Context, f conformance.Fault) (func(), error) {
	rule := simcloud.FaultRule{Operation: "*", Match: simcloud.FaultMatch{Account: "alice"}}
	switch f.Kind {
	case conformance.SlowEffects:
		late, moment := simcloud.Duration(f.Duration), simcloud.Duration(20*time.Millisecond)
		set := func(d simcloud.Duration) error {
			_, err := s.admin.PatchSettings(context.WithoutCancel(ctx),
				simcloud.SettingsPatch{BootTime: &d, StopTime: &d, ShutdownTime: &d})
			return err
		}
		return func() { must(s, set(moment)) }, set(late)
	case conformance.LostCreate:
		rule.Operation = simcloud.OperationCreateInstance
		rule.Effect = simcloud.FaultEffect{DropConnection: true, AfterEffect: true}
	case conformance.Unavailable:
		rule.Skip, rule.Effect.Error = f.Skip, simcloud.CodeUnavailable
	case conformance.Throttled:
		rule.Effect = simcloud.FaultEffect{Error: simcloud.CodeThrottled, RetryAfter: simcloud.Duration(f.RetryAfter)}
	case conformance.Exhausted:
		rule.Operation, rule.Effect.Error = simcloud.OperationCreateInstance, simcloud.CodeQuotaExceeded
	case conformance.PowerOffIgnored:
		return func() {}, s.ignoreShutdown(ctx)
	case conformance.NoCapacityToStart:
		none := 0
		return func() { must(s, s.admin.SetCapacity(context.WithoutCancel(ctx), "sim-1", "sim-1b", "small", nil)) },
			s.admin.SetCapacity(ctx, "sim-1", "sim-1b", "small", &none)
	case conformance.GivesUp:
		rule.Operation = simcloud.OperationCreateInstance
		rule.Effect.Instance = []simcloud.InstanceFault{{Kind: simcloud.FaultGivesUp}}
	case conformance.Unauthenticated:
		rule.Skip, rule.Effect.Error = f.Skip, simcloud.CodeUnauthorized
	case conformance.PermissionDenied:
		rule.Effect.Error = simcloud.CodeForbidden
	case conformance.Hanging:
		// The latency exceeds the duration of the test, so the call ends only when the cloud stops.
		rule.Effect.Latency = simcloud.Duration(24 * time.Hour)
	case conformance.DoneLate:
		rule.Operation, rule.Skip = simcloud.ChangesOnly, f.Skip
		rule.Effect = simcloud.FaultEffect{Error: simcloud.CodeUnavailable, EffectDelay: simcloud.Duration(f.Duration)}
	default:
		return s.setSemantics(ctx, f)
	}
	added, err := s.admin.AddFault(ctx, rule)
	if err != nil {
		return nil, err
	}
	return func() { must(s, s.admin.RemoveFault(context.WithoutCancel(ctx), added.ID)) }, nil
}

// setSemantics changes the semantics and returns a function that restores them.
func (s *sim) setSemantics(ctx context.Context, f conformance.Fault) (func(), error) {
	late, moment, none := simcloud.Duration(f.Duration), simcloud.Duration(500*time.Millisecond), simcloud.Duration(0)
	yes, no, huge, zero := true, false, 256<<20, 0
	var on, off simcloud.SemanticsPatch
	switch f.Kind {
	case conformance.LateReads:
		on.GetLag, off.GetLag = &late, &none
	case conformance.LateLists:
		on.ListLag, off.ListLag = &late, &none
	case conformance.LateTags:
		on.TagLag, off.TagLag = &late, &none
	case conformance.UnsteadyLists:
		on.ListRepeats, off.ListRepeats = &yes, &no
	case conformance.OtherCase:
		on.OtherCase, off.OtherCase = &yes, &no
	case conformance.StateGoesBack:
		on.StateReturns, off.StateReturns = &moment, &none
	case conformance.FiltersIgnored:
		on.FiltersIgnored, off.FiltersIgnored = &yes, &no
	case conformance.PartsInUse:
		on.KeepAddresses, off.KeepAddresses = &yes, &no
		on.AddressHold, off.AddressHold = &late, &none
	case conformance.PartsRemain:
		on.KeepAddresses, off.KeepAddresses = &yes, &no
	case conformance.QuotaFreesLate:
		on.QuotaLag, off.QuotaLag = &late, &none
		used := 0
		dump, err := s.admin.Dump(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range dump.Records {
			if r.State != simcloud.StateTerminated {
				used++
			}
		}
		if err := s.admin.SetQuota(ctx, "alice", "sim-1", simcloud.Quota{MaxInstances: &used}); err != nil {
			return nil, err
		}
	case conformance.GuestClaims: // The setting is not one of the semantics.
	case conformance.HugeAnswers:
		if s.withoutHugeAnswers {
			return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
		}
		on.AnswerPadding, off.AnswerPadding = &huge, &zero
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	set := func(patch *simcloud.SemanticsPatch, guestIP string) error {
		_, err := s.admin.PatchSettings(context.WithoutCancel(ctx),
			simcloud.SettingsPatch{Semantics: patch, GuestIP: &guestIP})
		return err
	}
	if err := set(&on, f.Address); err != nil {
		return nil, err
	}
	return func() {
		must(s, set(&off, ""))
		if f.Kind == conformance.QuotaFreesLate {
			must(s, s.admin.SetQuota(context.WithoutCancel(ctx), "alice", "sim-1", simcloud.Quota{}))
		}
	}, nil
}
