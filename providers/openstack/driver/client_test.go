package driver

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

func (s *script) get(t *testing.T, d *Driver, c provider.Credentials, spec []byte) error {
	t.Helper()
	_, err := d.Get(t.Context(), provider.GetRequest{ProviderID: "openstack:///" + serverID,
		Class: provider.Class{Spec: spec, Credentials: c}})
	return err
}

func TestOneTokenServesManyCallsAndAnotherFollowsIt(t *testing.T) {
	s := newScript(t)
	s.servers[serverID] = map[string]any{"id": serverID, "status": "ACTIVE"}
	d, credentials := s.driver(t)
	for range 3 {
		if err := s.get(t, d, credentials, nil); err != nil {
			t.Fatal(err)
		}
	}
	if s.tokens != 1 {
		t.Errorf("three calls took %d tokens", s.tokens)
	}
	s.mu.Lock()
	s.tokens++ // Keystone takes the token back.
	s.mu.Unlock()
	if err := s.get(t, d, credentials, nil); err != nil || s.tokens != 3 {
		t.Errorf("after the token was taken back: %v, %d tokens", err, s.tokens)
	}
	s.mu.Lock()
	s.tokens++
	s.refuses = http.StatusUnauthorized
	s.mu.Unlock()
	if err := s.get(t, d, credentials, nil); provider.CodeOf(err) != provider.Unauthenticated {
		t.Errorf("with a credential that is gone: %v", err)
	}
	s.mu.Lock()
	s.refuses = http.StatusServiceUnavailable
	s.mu.Unlock()
	if err := s.get(t, d, credentials, nil); provider.CodeOf(err) != provider.Unavailable {
		t.Errorf("with a Keystone that does not serve: %v", err)
	}
}

func TestTheRegionIsNamedWhereThereAreSeveral(t *testing.T) {
	s := newScript(t)
	s.regions = []string{"two", "one"}
	s.servers[serverID] = map[string]any{"id": serverID, "status": "ACTIVE"}
	d, credentials := s.driver(t)
	for region, message := range map[any]string{nil: "name one of one, two", "three": `no region "three"`, "one": ""} {
		err := s.get(t, d, credentials, sample.Spec("region", region))
		if message == "" {
			if err != nil {
				t.Errorf("region %v: %v", region, err)
			}
			continue
		}
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Code != provider.FailedPrecondition || e.Field != "region" || !strings.Contains(e.Message, message) {
			t.Errorf("region %v: %v, want %q", region, err, message)
		}
	}
}

func TestACallWithoutAServerSaysSo(t *testing.T) {
	s := newScript(t)
	d, credentials := s.driver(t)
	if err := s.get(t, d, credentials, nil); !provider.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	s.Close()
	other, _ := s.driver(t)
	if err := s.get(t, other, credentials, nil); provider.CodeOf(err) != provider.Unavailable {
		t.Errorf("without a service: %v", err)
	}
}
