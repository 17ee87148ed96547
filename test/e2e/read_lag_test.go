//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
)

// The cloud returns old states to readers. Nevertheless, exactly the requested instances must be created and kept. No
// instance may remain after the deletion, even if the instance was not listed yet when its machine was deleted.
func TestCloudReadsLag(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.createFleet(0, nil)
	made := 0
	for _, lag := range []time.Duration{0, 50 * time.Millisecond, 2 * time.Second, 5 * time.Second, 30 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			setting := simcloud.Duration(lag)
			m.settings(simcloud.SettingsPatch{ReadLag: &setting})

			begun := time.Now()
			m.scale(10)
			m.awaitRunning(10)
			t.Logf("ten machines are Running after %s", time.Since(begun).Round(100*time.Millisecond))
			made += 10
			m.wantInstances(t, made, 10)

			m.scale(0)
			m.awaitNoMachines()
			m.wantInstances(t, made, 0)

			m.scale(3)
			m.await("three machines with an instance", func(machines []v1beta1.Machine) bool {
				return len(machines) == 3 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
					return m.Spec.ProviderID == ""
				})
			})
			made += 3
			m.scale(0)
			m.awaitNoMachines()
			m.wantInstances(t, made, 0)
			t.Logf("created and deleted twice within %s", time.Since(begun).Round(100*time.Millisecond))
		})
	}
	m.wantNoTwins()
}

func (m *machinist) wantInstances(t *testing.T, created, live int) {
	t.Helper()
	instances := m.instances()
	living := 0
	for _, in := range instances {
		if in.State == simcloud.StatePending || in.State == simcloud.StateRunning {
			living++
		}
	}
	if len(instances) != created || living != live {
		t.Errorf("got %d created and %d live instances, want %d and %d", len(instances), living, created, live)
	}
}
