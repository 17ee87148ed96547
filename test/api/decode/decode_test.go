package decode

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
)

// casesPerKind is how many generated objects of each kind the ordinary test tries. The fuzz test goes on from there.
const casesPerKind = 400

// Rule: bad-input-names-field.
func TestWhatTheCRDsAdmitGoDecodes(t *testing.T) {
	for i, k := range loadKinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			check := newChecker(t)
			r := rand.New(rand.NewPCG(1, uint64(i)))
			admitted := 0
			for n := range casesPerKind {
				// From none to one in fifty places, of which an object has about a hundred.
				level := n % 10
				g := generator{t: t, r: r, hostility: level * level / 4}
				if check(t, k, g.object(k)) {
					admitted++
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("admitted %d of %d", admitted, casesPerKind)
			// Otherwise the test would be empty.
			if admitted < casesPerKind/20 || admitted > casesPerKind*9/10 {
				t.Errorf("admitted %d of %d", admitted, casesPerKind)
			}
		})
	}
}

// Each hostile value alone, in each place: here no other fault can hide what it does.
//
// Rule: bad-input-names-field.
func TestHostileValuesInEachPosition(t *testing.T) {
	for _, k := range loadKinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			check := newChecker(t)
			g := generator{t: t, r: rand.New(rand.NewPCG(2, 2))}
			var body []byte
			for {
				body = g.object(k)
				if check(t, k, body) {
					break
				}
			}
			admitted := 0
			eachPosition(t, body, func(variant []byte) {
				if check(t, k, variant) {
					admitted++
				}
			})
			if admitted == 0 {
				t.Error("none admitted, not even 0 where a number is asked for")
			}
		})
	}
}

func FuzzWhatTheCRDsAdmitGoDecodes(f *testing.F) {
	kinds := loadKinds(f)
	for i, k := range kinds {
		g := generator{t: f, r: rand.New(rand.NewPCG(3, uint64(i)))}
		for range 20 {
			f.Add(uint8(i), g.object(k))
		}
	}
	check := newChecker(f)
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		check(t, kinds[int(which)%len(kinds)], body)
	})
}

// newChecker returns a function that says whether the API server would admit an object, and fails the test if it would
// and Go then does not decode it, changes it on the way back, or has what it wrote back refused.
func newChecker(t testing.TB) func(testing.TB, kind, []byte) bool {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := machinistv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	// As informers decode.
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	// Kubernetes writes times without fractions of a second.
	same := equality.Semantic.Copy()
	if err := same.AddFunc(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }); err != nil {
		t.Fatal(err)
	}

	return func(t testing.TB, k kind, body []byte) bool {
		t.Helper()
		stored, err := k.admit(t.Context(), body)
		if err != nil {
			return false
		}
		first, _, err := decoder.Decode(stored, nil, nil)
		if err != nil {
			t.Errorf("admitted and not decoded: %v\n%s", err, stored)
			return true
		}
		plain := reflect.New(k.goType).Interface()
		if err := json.Unmarshal(stored, plain); err != nil {
			t.Errorf("admitted and not decoded by encoding/json: %v\n%s", err, stored)
		}
		written, err := json.Marshal(first)
		if err != nil {
			t.Errorf("decoded and not encoded again: %v\n%s", err, stored)
			return true
		}
		second, _, err := decoder.Decode(written, nil, nil)
		if err != nil {
			t.Errorf("encoded by Go and not decoded by it: %v\n%s", err, written)
			return true
		}
		if !same.DeepEqual(first, second) {
			t.Errorf("changed by encoding:\nstored  %s\nwritten %s", stored, written)
		}
		if _, err := k.admit(t.Context(), written); err != nil && !hasQuantities(first) {
			t.Errorf("admitted and, written back by Go, refused: %v\nstored  %s\nwritten %s", err, stored, written)
		}
		return true
	}
}

// hasQuantities excuses what Go writes with more digits, or another unit, than it read. Nobody but their author writes
// the quantities of a class.
func hasQuantities(object runtime.Object) bool {
	class, ok := object.(*machinistv1.MachineClass)
	return ok && (class.Spec.Capacity != nil || len(class.Status.Capacity) > 0)
}

// eachPosition calls try with body changed in one place at a time, for each place and each hostile value.
func eachPosition(t *testing.T, body []byte, try func([]byte)) {
	t.Helper()
	var root any
	if err := json.Unmarshal(body, &root); err != nil {
		t.Fatal(err)
	}
	put := func(set func(any), original any) {
		for _, value := range hostile {
			set(json.RawMessage(value))
			variant, err := json.Marshal(root)
			if err != nil {
				t.Fatalf("encode with %s: %v", value, err)
			}
			try(variant)
		}
		set(original)
	}
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for name, child := range v {
				put(func(x any) { v[name] = x }, child)
				walk(child)
			}
		case []any:
			for i, child := range v {
				put(func(x any) { v[i] = x }, child)
				walk(child)
			}
		}
	}
	walk(root)
}
