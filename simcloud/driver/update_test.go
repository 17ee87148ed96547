package driver_test

import (
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

func TestUpdateOutcomes(t *testing.T) {
	type step struct {
		drained bool
		want    provider.UpdateOutcome
	}
	done := []step{{false, provider.UpdateDone}}
	drainFirst := []step{{false, provider.UpdateNeedsDrain}, {true, provider.UpdateDone}, {true, provider.UpdateDone}}
	replace := []step{{false, provider.UpdateNeedsReplacement}, {true, provider.UpdateNeedsReplacement}}
	refused := []step{{true, provider.UpdateRefused}}
	for name, test := range map[string]struct {
		changes []string
		version string
		steps   []step
		updates int
	}{
		"nothing":            {nil, "v1.36.3", done, 0},
		"no version":         {nil, "", done, 0},
		"type, live":         {[]string{"instanceType", "medium"}, "v1.36.3", done, 1},
		"type, restart":      {[]string{"instanceType", "large"}, "v1.36.3", drainFirst, 1},
		"type, unsupported":  {[]string{"instanceType", "gpu"}, "v1.36.3", replace, 0},
		"type, architecture": {[]string{"instanceType", "small-arm"}, "v1.36.3", replace, 0},
		"type, unknown":      {[]string{"instanceType", "huge"}, "v1.36.3", refused, 0},
		"image, restart":     {[]string{"image", "sim-os-2"}, "v1.36.3", drainFirst, 1},
		"image, unsupported": {[]string{"image", "sim-os-immutable"}, "v1.36.3", replace, 0},
		"image, unknown":     {[]string{"image", "nowhere"}, "v1.36.3", refused, 0},
		"version, by an agent": {[]string{"image", "sim-os-agent"}, "v1.37.0", []step{
			{false, provider.UpdateNeedsDrain}, {true, provider.UpdateInProgress}, {true, provider.UpdateByAgent}}, 1},
		"version":               {nil, "v1.37.0", drainFirst, 1},
		"region":                {[]string{"region", "sim-2", "zone", "sim-2a"}, "v1.36.3", replace, 0},
		"zone":                  {[]string{"zone", "sim-1a"}, "v1.36.3", replace, 0},
		"live and restart":      {[]string{"instanceType", "medium", "image", "sim-os-2"}, "v1.36.3", drainFirst, 1},
		"restart and rejection": {[]string{"instanceType", "gpu", "image", "sim-os-2"}, "v1.36.3", replace, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t)
			in := s.create("a")
			for i, step := range test.steps {
				result, err := s.driver.Update(t.Context(), provider.UpdateRequest{
					Machine: machine("a"), Class: class(test.changes...), ClusterID: cluster,
					ProviderID: in.ProviderID, Version: test.version, NodeDrained: step.drained,
				})
				if err != nil || result.Outcome != step.want || result.Instance == nil {
					t.Fatalf("step %d: %+v %v, expected %s", i, result, err, step.want)
				}
				if needsReason := step.want == provider.UpdateNeedsReplacement ||
					step.want == provider.UpdateRefused; needsReason && result.Reason == "" {
					t.Errorf("step %d: no reason", i)
				}
			}
			if n := s.calls(simcloud.OperationUpdateInstance); n != test.updates {
				t.Errorf("%d updates, expected %d", n, test.updates)
			}
			if last := test.steps[len(test.steps)-1]; last.want == provider.UpdateDone {
				after := s.raw(in.ProviderID)
				for i := 0; i < len(test.changes); i += 2 {
					if got := map[string]string{"instanceType": after.Type,
						"image": after.Image}[test.changes[i]]; got != test.changes[i+1] {
						t.Errorf("%s = %s", test.changes[i], got)
					}
				}
			}
		})
	}
}

func TestUpdateWithRestartIsInProgress(t *testing.T) {
	s := newSim(t)
	in := s.create("a")
	later := simcloud.Duration(time.Minute)
	s.settings(simcloud.SettingsPatch{RebootTime: &later})
	for range 2 {
		result, err := s.driver.Update(t.Context(), provider.UpdateRequest{
			Machine: machine("a"), Class: class("instanceType", "large"), ClusterID: cluster, ProviderID: in.ProviderID,
			NodeDrained: true,
		})
		if err != nil || result.Outcome != provider.UpdateInProgress || result.Instance.State != provider.StateRunning {
			t.Errorf("%+v %v", result, err)
		}
	}
	if n := s.calls(simcloud.OperationUpdateInstance); n != 1 {
		t.Errorf("%d updates", n)
	}
}

func TestUpdateErrors(t *testing.T) {
	s := newSim(t)
	foreign := s.createOutside(map[string]string{provider.TagCluster: "other", provider.TagMachineUID: "uid-of-a"})
	update := func(providerID string) error {
		_, err := s.driver.Update(t.Context(), provider.UpdateRequest{
			Machine: machine("a"), Class: class("instanceType", "medium", "zone", "sim-1a"), ClusterID: cluster,
			ProviderID: providerID,
		})
		return err
	}
	wantCode(t, update(foreign.ProviderID), provider.FailedPrecondition)
	wantCode(t, update("sim://sim-1/sim-1b/i-0"), provider.NotFound)
	if s.raw(foreign.ProviderID).Type != "small" {
		t.Error("the instance of another owner was changed")
	}
	in := s.create("a")
	later := simcloud.Duration(time.Minute)
	s.settings(simcloud.SettingsPatch{ShutdownTime: &later})
	if gone, err := s.delete(provider.DeleteRequest{Machine: machine("a"), ProviderID: in.ProviderID}); gone ||
		err != nil {
		t.Fatal(gone, err)
	}
	wantCode(t, update(in.ProviderID), provider.Aborted)
}

// The cloud does not know the kubelet version that an agent installed. Only the status of the Node shows this version.
func TestUpdateByAgentDependsOnNodeVersion(t *testing.T) {
	s := newSim(t)
	in := s.create("a", "image", "sim-os-agent")
	for _, step := range []struct {
		node, version string
		want          provider.UpdateOutcome
	}{
		{"v1.36.3", "v1.36.3", provider.UpdateDone},
		{"v1.36.3", "v1.37.0", provider.UpdateByAgent},
		{"v1.37.0", "v1.37.0", provider.UpdateDone},
		{"v1.37.0", "v1.36.3", provider.UpdateByAgent},
		{"", "v1.37.0", provider.UpdateByAgent},
	} {
		result, err := s.driver.Update(t.Context(), provider.UpdateRequest{
			Machine: machine("a"), Class: class("image", "sim-os-agent"), ClusterID: cluster,
			ProviderID: in.ProviderID, Version: step.version, NodeVersion: step.node,
		})
		if err != nil || result.Outcome != step.want {
			t.Errorf("from %q to %s: %+v %v, expected %s", step.node, step.version, result, err, step.want)
		}
	}
	if n := s.calls(simcloud.OperationUpdateInstance); n != 0 {
		t.Errorf("the cloud got %d updates", n)
	}
}
