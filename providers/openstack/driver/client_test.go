package driver

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

func (s *fakeAPI) get(t *testing.T, d *Driver, c provider.Credentials, spec []byte) error {
	t.Helper()
	_, err := d.Get(t.Context(), provider.GetRequest{ProviderID: "openstack:///" + serverID,
		Class: provider.Class{Spec: spec, Credentials: c}})
	return err
}

func TestTokenIsReusedAndReplacedAfterRevocation(t *testing.T) {
	s := newFakeAPI(t)
	s.servers[serverID] = map[string]any{"id": serverID, "status": "ACTIVE"}
	d, credentials := s.driver(t)
	for range 3 {
		if err := s.get(t, d, credentials, nil); err != nil {
			t.Fatal(err)
		}
	}
	if s.tokens != 1 {
		t.Errorf("three calls requested %d tokens, want 1", s.tokens)
	}
	s.mu.Lock()
	s.tokens++ // Revoke the token.
	s.mu.Unlock()
	if err := s.get(t, d, credentials, nil); err != nil || s.tokens != 3 {
		t.Errorf("after the token was revoked: got %v, %d tokens, want 3 tokens", err, s.tokens)
	}
	s.mu.Lock()
	s.tokens++
	s.tokenStatus = http.StatusUnauthorized
	s.mu.Unlock()
	if err := s.get(t, d, credentials, nil); provider.CodeOf(err) != provider.Unauthenticated {
		t.Errorf("with a deleted credential: got %v, want Unauthenticated", err)
	}
	s.mu.Lock()
	s.tokenStatus = http.StatusServiceUnavailable
	s.mu.Unlock()
	if err := s.get(t, d, credentials, nil); provider.CodeOf(err) != provider.Unavailable {
		t.Errorf("while Keystone is unavailable: got %v, want Unavailable", err)
	}
}

func TestCloudWithSeveralRegionsRequiresRegion(t *testing.T) {
	s := newFakeAPI(t)
	s.regions = []string{"two", "one"}
	s.servers[serverID] = map[string]any{"id": serverID, "status": "ACTIVE"}
	d, credentials := s.driver(t)
	for region, message := range map[any]string{nil: "to one of one, two", "three": `no region "three"`, "one": ""} {
		err := s.get(t, d, credentials, sample.Spec("region", region))
		if message == "" {
			if err != nil {
				t.Errorf("region %v: got %v, want no error", region, err)
			}
			continue
		}
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Code != provider.FailedPrecondition || e.Field != "region" || !strings.Contains(e.Message, message) {
			t.Errorf("region %v: got %v, want FailedPrecondition with %q", region, err, message)
		}
	}
}

func TestGetReportsMissingServerAndUnreachableCloud(t *testing.T) {
	s := newFakeAPI(t)
	d, credentials := s.driver(t)
	if err := s.get(t, d, credentials, nil); !provider.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	s.Close()
	other, _ := s.driver(t)
	if err := s.get(t, other, credentials, nil); provider.CodeOf(err) != provider.Unavailable {
		t.Errorf("after the cloud was closed: got %v, want Unavailable", err)
	}
}
