package healthcheck

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// FuzzLimit checks that only 0 and 0% disable remediation, and that 100% means all machines.
//
// Rule: max-unhealthy-stops-remediation.
func FuzzLimit(f *testing.F) {
	for _, seed := range []string{"0%", "0", "1%", "40%", "100%", "-1%", "many", "", "99999999999999999999%",
		"9223372036854775807%"} {
		f.Add(seed, int32(0), int32(3))
	}
	f.Add("", int32(-1), int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, text string, number, machines int32) {
		if machines < 0 {
			return
		}
		p := Policy{MaxUnhealthy: intstr.FromString(text)}
		if text == "" {
			p.MaxUnhealthy = intstr.FromInt32(number)
		}
		none := p.MaxUnhealthy == intstr.FromInt32(0) || p.MaxUnhealthy == intstr.FromString("0%")
		n := p.limit(int(machines))
		if n < 0 || n == 0 && !none || none && n != 0 {
			t.Errorf("%s of %d is %d", p.MaxUnhealthy.String(), machines, n)
		}
		if text == "100%" && n != max(1, int(machines)) {
			t.Errorf("all of %d are %d", machines, n)
		}
	})
}
