package bounds

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// FuzzResolve (rule surge-and-unavailable-kept) resolves random strategies. An error must name the field, and values
// that the CRD admits must not cause an error. If there is no error, the bounds must let a rollout advance, and must
// not overflow.
func FuzzResolve(f *testing.F) {
	for i, value := range []string{"0", "1", "-1", "0%", "1%", "100%", "101%", "1.5%", "%", "", "some", "2147483647",
		"2147483648", "99999999999999999999%", "١%", "+5%", "-0%"} {
		f.Add(value, "0", int32(i*i*i), uint8(i), false)
		f.Add("0%", value, int32(math.MaxInt32-i), uint8(0), true)
	}
	strategies := []v1beta1.DeploymentStrategyType{"", v1beta1.StrategyRollingUpdate, v1beta1.StrategyRecreate,
		v1beta1.StrategyOnDelete, v1beta1.StrategyInPlace}
	f.Fuzz(func(t *testing.T, one, other string, replicas int32, which uint8, numbers bool) {
		if replicas < 0 {
			return // The schema admits no negative replicas.
		}
		surge, unavailable := value(one, numbers), value(other, numbers)
		strategy := v1beta1.DeploymentStrategy{
			Type:          strategies[int(which)%len(strategies)],
			RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &surge, MaxUnavailable: &unavailable},
			InPlace:       &v1beta1.InPlaceUpdate{MaxUnavailable: &unavailable},
		}
		b, err := Resolve(strategy, replicas)
		rolling, inPlace := strategy.TypeOrDefault() == v1beta1.StrategyRollingUpdate,
			strategy.Type == v1beta1.StrategyInPlace
		if err != nil {
			if !strings.HasPrefix(err.Error(), "spec.strategy.") {
				t.Errorf("%+v of %d: %v", strategy, replicas, err)
			}
			if admitted(unavailable) && (!rolling || admitted(surge)) {
				t.Errorf("the schema admits surge %s, unavailable %s of %d: %v", &surge, &unavailable, replicas, err)
			}
			return
		}
		if b.MaxSurge < 0 || b.MaxUnavailable < 0 || b.MaxUnavailable > replicas || b.MaxSurge > maxMachines {
			t.Errorf("surge %s, unavailable %s of %d: %+v", &surge, &unavailable, replicas, b)
		}
		if (rolling || inPlace) && replicas > 0 && b.MaxSurge+b.MaxUnavailable == 0 {
			t.Errorf("with surge %s and unavailable %s of %d, a rollout cannot advance", &surge, &unavailable, replicas)
		}
		if least := b.MinAvailable(replicas); least < 0 || least > replicas {
			t.Errorf("%d of %d must stay available", least, replicas)
		}
		if percent, err := strconv.Atoi(strings.TrimSuffix(one, "%")); rolling && admitted(surge) &&
			surge.Type == intstr.String && err == nil {
			if want := (int64(percent)*int64(replicas) + 99) / 100; int64(b.MaxSurge) != min(want, maxMachines) {
				t.Errorf("%s of %d is %d, want %d", &surge, replicas, b.MaxSurge, want)
			}
		}
	})
}

func value(text string, number bool) intstr.IntOrString {
	if n, err := strconv.ParseInt(text, 10, 32); number && err == nil {
		return intstr.FromInt32(int32(n))
	}
	return intstr.FromString(text)
}

func admitted(v intstr.IntOrString) bool {
	if v.Type == intstr.Int {
		return v.IntVal >= 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return err == nil && n >= 0 && n <= 100 && strconv.Itoa(n)+"%" == v.StrVal
}
