package admission

import (
	"testing"
	"time"
	_ "time/tzdata"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Rules: manager-webhook-refuses, unwise-is-warned.
func TestBudget(t *testing.T) {
	window := func(schedule, zone string, hours time.Duration) []v1beta1.DisruptionWindow {
		return []v1beta1.DisruptionWindow{{Schedule: schedule, TimeZone: zone,
			Duration: metav1.Duration{Duration: hours * time.Hour}}}
	}
	number, text := intstr.FromInt32, intstr.FromString
	type spec = v1beta1.MachineDisruptionBudgetSpec
	for name, test := range map[string]struct {
		spec
		want
	}{
		"of all machines": {spec{MaxDisrupted: number(3)}, want{}},
		"by night": {spec{MaxDisrupted: text("10%"), Windows: window("0 22 * * *", "Europe/Berlin", 8),
			Apply: v1beta1.ApplyInside}, want{}},
		"never by day": {spec{MaxDisrupted: number(0), Windows: window("0 22 * * *", "Europe/Berlin", 8),
			Apply: v1beta1.ApplyOutside}, want{}},
		"with an invalid selector": {spec{MaxDisrupted: number(1), Selector: metav1.LabelSelector{
			MatchLabels: map[string]string{"a b": "c"}}}, want{errors: []string{"spec.selector: Invalid value"}}},
		"with an invalid number": {spec{MaxDisrupted: text("many")}, want{errors: []string{`spec.maxDisrupted: Invalid value: "many"`}}},
		"with a negative number": {spec{MaxDisrupted: number(-1)}, want{errors: []string{`spec.maxDisrupted: Invalid value: "-1"`}}},
		"with an invalid window": {spec{MaxDisrupted: number(0), Windows: window("@every 1h", "Atlantis", 200)}, want{errors: []string{
			`spec.windows[0].duration: Invalid value: "200h0m0s"`, `spec.windows[0].schedule: Invalid value: "@every 1h"`,
			`spec.windows[0].timeZone: Invalid value: "Atlantis"`}}},
		"outside of windows, without windows": {spec{MaxDisrupted: number(0), Apply: v1beta1.ApplyOutside},
			want{errors: []string{"spec.windows: Required value"}}},
		"that blocks": {spec{MaxDisrupted: number(0)}, want{warnings: []string{
			"spec.maxDisrupted: 0 without windows blocks all disruptions until the budget is changed, and broken machines"}}},
		"that blocks in percent": {spec{MaxDisrupted: text("0%"), Reasons: v1beta1.DisruptionReasons[1:]}, want{
			warnings: []string{"spec.maxDisrupted: 0% without windows blocks all disruptions until the budget is changed"}}},
		"that allows all": {spec{MaxDisrupted: text("100%")}, want{warnings: []string{"spec.maxDisrupted: 100% does not limit anything"}}},
		"that always applies": {spec{MaxDisrupted: number(1), Windows: window("0 0 * * *", "", 24)},
			want{warnings: []string{"spec.windows: a window is always open, so the budget always applies"}}},
		"that never applies": {spec{MaxDisrupted: number(1), Windows: window("0 0 * * *", "", 24), Apply: v1beta1.ApplyOutside},
			want{warnings: []string{"spec.windows: the budget never applies, because it applies outside of windows and a window is always open"}}},
	} {
		t.Run(name, func(t *testing.T) {
			test.check(t, ValidateBudget(&v1beta1.MachineDisruptionBudget{Spec: test.spec}, time.Date(2026, 5,
				5, 0, 0, 0, 0, time.UTC)))
		})
	}
	pause := &v1beta1.MachineDisruptionBudget{Spec: spec{MaxDisrupted: number(0)}}
	pause.Name = disruption.PauseBudget
	want{}.check(t, ValidateBudget(pause, time.Unix(0, 0)))
}
