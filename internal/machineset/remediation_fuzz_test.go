package machineset

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// FuzzRemediationLimit (S-7): whatever a deployment specifies, the limit is 0 only if it specifies 0.
func FuzzRemediationLimit(f *testing.F) {
	for _, seed := range []string{"0%", "0", "1%", "100%", "-1%", "many", "", "99999999999999999999%", "9223372036854775807%"} {
		f.Add(seed, int32(0), int32(100000))
	}
	f.Add("1%", int32(0), int32(0))
	f.Add("", int32(-1), int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, text string, number, replicas int32) {
		if replicas < 0 {
			return
		}
		limit := intstr.FromString(text)
		if text == "" {
			limit = intstr.FromInt32(number)
		}
		none := limit == intstr.FromInt32(0) || limit == intstr.FromString("0%")
		if n := remediationLimit(v1beta1.MachineRemediation{MaxInFlight: &limit}, replicas); n < 0 || n == 0 && !none || none && n != 0 {
			t.Errorf("%s of %d is %d", limit.String(), replicas, n)
		}
	})
}
