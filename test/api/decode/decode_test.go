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

const casesPerKind = 400

// Rule: bad-input-names-field.
func TestGoDecodesAdmittedObjects(t *testing.T) {
	for i, k := range loadKinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			check := newChecker(t)
			r := rand.New(rand.NewPCG(1, uint64(i)))
			admitted := 0
			for n := range casesPerKind {
				// At most 2% of the values in a case are hostile. An object has about a hundred values.
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
			// Many objects must be admitted, and many must be rejected because of hostile values. Otherwise the test
			// proves little.
			if admitted < casesPerKind/20 || admitted > casesPerKind*9/10 {
				t.Errorf("admitted %d of %d objects, want between 5%% and 90%%", admitted, casesPerKind)
			}
		})
	}
}

// Each variant has a single hostile value, because one error could hide another error.
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
				t.Error("no variant was admitted, not even 0 in place of a number")
			}
		})
	}
}

func FuzzGoDecodesAdmittedObjects(f *testing.F) {
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

// newChecker returns a function that reports whether the API server admits an object. The function fails the test if Go
// cannot decode an admitted object. The test also fails if the encoded object differs from the original, or if the API
// server refuses it.
func newChecker(t testing.TB) func(testing.TB, kind, []byte) bool {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := machinistv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	// Informers use the same decoder.
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
			t.Errorf("an admitted object cannot be decoded: %v\n%s", err, stored)
			return true
		}
		typed := reflect.New(k.goType).Interface()
		if err := json.Unmarshal(stored, typed); err != nil {
			t.Errorf("encoding/json cannot decode an admitted object: %v\n%s", err, stored)
		}
		written, err := json.Marshal(first)
		if err != nil {
			t.Errorf("a decoded object cannot be encoded: %v\n%s", err, stored)
			return true
		}
		second, _, err := decoder.Decode(written, nil, nil)
		if err != nil {
			t.Errorf("an object that Go encoded cannot be decoded: %v\n%s", err, written)
			return true
		}
		if !same.DeepEqual(first, second) {
			t.Errorf("encoding changed the object:\nstored  %s\nwritten %s", stored, written)
		}
		if _, err := k.admit(t.Context(), written); err != nil && !hasQuantities(first) {
			t.Errorf("the API server refuses an admitted object after Go encoded it: %v\nstored  %s\nwritten %s", err, stored,
				written)
		}
		return true
	}
}

// hasQuantities reports whether an object contains quantities. Go may write a quantity with other digits or another
// unit. The difference is harmless, because no controller writes the quantities of a class.
func hasQuantities(object runtime.Object) bool {
	class, ok := object.(*machinistv1.MachineClass)
	return ok && (class.Spec.Capacity != nil || len(class.Status.Capacity) > 0)
}

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
