package driver_test

import (
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

func TestDeleteIsGoneAfterInstanceIsTerminated(t *testing.T) {
	s := newSim(t)
	later := simcloud.Duration(time.Minute)
	s.settings(simcloud.SettingsPatch{ShutdownTime: &later})
	in := s.create("a")
	for _, req := range []provider.DeleteRequest{{Machine: machine("a"), ProviderID: in.ProviderID},
		{Machine: machine("a")}} {
		for range 2 {
			if gone, err := s.delete(req); gone || err != nil {
				t.Errorf("gone %v, error %v while the instance shuts down", gone, err)
			}
		}
	}
	if got := s.state(in.ProviderID); got != simcloud.StateShuttingDown {
		t.Errorf("state %s", got)
	}
	if n := s.calls(simcloud.OperationDeleteInstance); n != 1 {
		t.Errorf("%d calls to delete the instance", n)
	}
}

func TestDeleteByTagsDeletesAllInstances(t *testing.T) {
	s := newSim(t)
	tags := map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: "uid-of-a"}
	one, two := s.createOutside(tags), s.createOutside(tags)
	other := s.createOutside(map[string]string{provider.TagCluster: "other", provider.TagMachineUID: "uid-of-a"})
	if gone, err := s.delete(provider.DeleteRequest{Machine: machine("a")}); !gone || err != nil {
		t.Errorf("gone %v, error %v", gone, err)
	}
	for id, want := range map[string]simcloud.InstanceState{one.ProviderID: simcloud.StateTerminated,
		two.ProviderID: simcloud.StateTerminated, other.ProviderID: simcloud.StateRunning} {
		if got := s.state(id); got != want {
			t.Errorf("%s is %s, expected %s", id, got, want)
		}
	}
}

// Lagging reads do not show the new instance. If the driver treated the instance as deleted, the instance would run
// forever.
func TestDeleteDoesNotTrustLaggingRead(t *testing.T) {
	s := newSim(t)
	lag := simcloud.Duration(time.Hour)
	s.settings(simcloud.SettingsPatch{ReadLag: &lag})
	in := s.create("a")
	if _, err := s.get(provider.GetRequest{Machine: machine("a"), ProviderID: in.ProviderID}); !provider.IsNotFound(err) {
		t.Fatalf("get: %v; the read has no lag, so this tests nothing", err)
	}
	if _, err := s.delete(provider.DeleteRequest{Machine: machine("a"), ProviderID: in.ProviderID}); err != nil {
		t.Error(err)
	}
	if got := s.state(in.ProviderID); got != simcloud.StateTerminated {
		t.Errorf("state %s: the instance leaked", got)
	}
	foreign := s.createOutside(nil)
	if gone, err := s.delete(provider.DeleteRequest{Machine: machine("a"), ProviderID: foreign.ProviderID}); gone ||
		provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("another owner: gone %v, error %v", gone, err)
	}
	if got := s.state(foreign.ProviderID); got != simcloud.StateRunning {
		t.Errorf("another owner: state %s", got)
	}
	if gone, err := s.delete(provider.DeleteRequest{Machine: machine("a"), ProviderID: in.ProviderID}); !gone ||
		err != nil {
		t.Errorf("repeated: gone %v, error %v", gone, err)
	}
}

func TestDeleteNeedsUID(t *testing.T) {
	_, err := newSim(t).delete(provider.DeleteRequest{Machine: provider.Machine{Namespace: "ns", Name: "a"}})
	wantCode(t, err, provider.InvalidArgument)
}

func TestDeleteNeedsNoValidProviderSpec(t *testing.T) {
	for name, raw := range map[string][]byte{"missing": nil, "not JSON": []byte("{"),
		"another kind": spec("kind", "Other"), "another endpoint": spec("endpoint", "http://elsewhere")} {
		s := newSim(t)
		in := s.create("a")
		req := provider.DeleteRequest{Machine: machine("a")}
		req.Class.Spec = raw
		if gone, err := s.delete(req); !gone || err != nil {
			t.Errorf("%s: gone %v, error %v", name, gone, err)
		}
		if got := s.state(in.ProviderID); got != simcloud.StateTerminated {
			t.Errorf("%s: state %s", name, got)
		}
	}
}
