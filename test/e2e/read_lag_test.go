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

// A cloud that answers reads from the past makes exactly the instances that were asked for, keeps them, and is left
// with none when the fleet goes, whether its machines had come up or were deleted while the cloud did not show them
// yet.
func TestReadsThatLag(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.fleet(0, nil)
	made := 0
	for _, lag := range []time.Duration{0, 50 * time.Millisecond, 2 * time.Second, 5 * time.Second, 30 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			setting := simcloud.Duration(lag)
			m.settings(simcloud.SettingsPatch{ReadLag: &setting})

			begun := time.Now()
			m.scale(10)
			m.running(10)
			t.Logf("ten machines are Running after %s", time.Since(begun).Round(100*time.Millisecond))
			made += 10
			m.wantMade(t, made, 10)

			m.scale(0)
			m.none()
			m.wantMade(t, made, 0)

			m.scale(3)
			m.await("three machines that were asked for", func(machines []v1beta1.Machine) bool {
				return len(machines) == 3 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
					return m.Spec.ProviderID == ""
				})
			})
			made += 3
			m.scale(0)
			m.none()
			m.wantMade(t, made, 0)
			t.Logf("made, deleted, made and deleted again within %s", time.Since(begun).Round(100*time.Millisecond))
		})
	}
	m.noTwins()
}

// wantMade counts, in the cloud's own journal, the instances that it ever made and those that are not being removed.
func (m *machinist) wantMade(t *testing.T, ever, preserved int) {
	t.Helper()
	instances := m.instances()
	living := 0
	for _, in := range instances {
		if in.State == simcloud.StatePending || in.State == simcloud.StateRunning {
			living++
		}
	}
	if len(instances) != ever || living != preserved {
		t.Errorf("the cloud made %d instances and keeps %d; want %d and %d", len(instances), living, ever, preserved)
	}
}
