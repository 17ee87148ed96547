package machinedeployment

import (
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

func inline(providerSpec string) v1beta1.MachineSpec {
	return v1beta1.MachineSpec{Provider: "sim", ProviderSpec: &runtime.RawExtension{Raw: []byte(providerSpec)}}
}

func inlineTemplate(raw []byte) Template {
	return Template{Spec: &v1beta1.MachineSpec{ProviderSpec: &runtime.RawExtension{Raw: raw}}}
}

// The hash is part of the names of sets. A change of TemplateHash therefore requires a new hashVersion.
//
// Rule: only-template-changes-roll.
func TestTemplateHashIsStable(t *testing.T) {
	class := v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}, Version: "v1.36.3"}
	full := inline(`{"size":"m","disks":[{"gb":10},{"gb":2e1}],"name":"ünï <x>","spot":true,"zone":null}`)
	full.UserDataRef = &v1beta1.UserDataRef{Name: "boot", Key: "worker"}
	full.Version = "v1.36.3"
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name       string
		spec       v1beta1.MachineSpec
		after      time.Time
		collisions int32
		want       string
	}{
		{"empty", v1beta1.MachineSpec{}, time.Time{}, 0, "26kbtwbjk"},
		{"class", class, time.Time{}, 0, "qdwlm5hg2"},
		{"class after a collision", class, time.Time{}, 1, "bk4zhtch7"},
		{"class after a time", class, at, 0, "r6mv2b45d"},
		{"class after the same time in another time zone", class, at.In(time.FixedZone("x", 7200)), 0, "r6mv2b45d"},
		{"inline", full, time.Time{}, 0, "tmtl4xxz2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := TemplateHash(Template{Spec: &test.spec}, test.after, test.collisions)
			if got != test.want {
				t.Errorf("the hash is %q, expected %q", got, test.want)
			}
			if !regexp.MustCompile(`^[b-z2-9]{1,9}$`).MatchString(got) {
				t.Errorf("the hash %q is not valid in a name and a label", got)
			}
		})
	}
}

// Rule: only-template-changes-roll.
func TestSameRevision(t *testing.T) {
	tests := []struct {
		name string
		a, b v1beta1.MachineSpec
		same bool
	}{
		{"order of keys", inline(`{"a":1,"b":{"c":2,"d":3}}`), inline(`{"b":{"d":3,"c":2},"a":1}`), true},
		{"white space", inline(`{"a":[1,2]}`), inline("{ \"a\" :\n[ 1,\t2 ] }"), true},
		{"formatting of numbers", inline(`{"a":1,"b":100,"c":0.5,"d":0}`), inline(`{"a":1.0,"b":1e2,"c":5E-1,"d":-0.00}`),
			true},
		{"escaping", inline(`{"a":"é<"}`), inline(`{"a":"\u00e9\u003c"}`), true},
		{"large numbers keep their precision", inline(`{"a":9007199254740993}`), inline(`{"a":9007199254740992}`), false},
		{"huge exponents", inline(`{"a":1e999999999999}`), inline(`{"a":1e999999999998}`), false},
		{"a number is not a string", inline(`{"a":1}`), inline(`{"a":"1"}`), false},
		{"null is not absence", inline(`{"a":null}`), inline(`{}`), false},
		{"order of a list", inline(`{"a":[1,2]}`), inline(`{"a":[2,1]}`), false},
		{"value", inline(`{"a":1}`), inline(`{"a":2}`), false},
		{"not JSON", inline(`{"a":`), inline(`{"a":`), true},
		{"provider", v1beta1.MachineSpec{Provider: "x"}, v1beta1.MachineSpec{Provider: "y"}, false},
		{"class", v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "x"}},
			v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "y"}}, false},
		{"version", v1beta1.MachineSpec{Version: "v1.2.3"}, v1beta1.MachineSpec{Version: "v1.2.4"}, false},
		{"user data", v1beta1.MachineSpec{UserDataRef: &v1beta1.UserDataRef{Name: "x"}},
			v1beta1.MachineSpec{UserDataRef: &v1beta1.UserDataRef{Name: "y"}}, false},
		{"default key of user data", v1beta1.MachineSpec{UserDataRef: &v1beta1.UserDataRef{Name: "x"}},
			v1beta1.MachineSpec{UserDataRef: &v1beta1.UserDataRef{Name: "x", Key: "userData"}}, true},
		{"fields that cause no rollout", v1beta1.MachineSpec{Provider: "x"}, v1beta1.MachineSpec{
			Provider:       "x",
			CredentialsRef: &v1beta1.LocalRef{Name: "c"},
			Node:           v1beta1.NodeTemplate{Labels: map[string]string{"a": "b"}},
			Timeouts:       v1beta1.MachineTimeouts{Drain: &metav1.Duration{Duration: 1}},
			LifecycleHooks: v1beta1.LifecycleHooks{PreDrain: []v1beta1.LifecycleHook{{Name: "x.y", Owner: "z"}}},
		}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := SameRevision(Template{Spec: &test.a}, Template{Spec: &test.b}); got != test.same {
				t.Errorf("same revision: %v, expected %v", got, test.same)
			}
			a, b := TemplateHash(Template{Spec: &test.a}, time.Time{}, 0), TemplateHash(Template{Spec: &test.b}, time.Time{}, 0)
			if got := a == b; got != test.same {
				t.Errorf("same hash: %v, expected %v", got, test.same)
			}
		})
	}
}

func TestCanonicalNumber(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"0", "0"}, {"-0", "0"}, {"0.000", "0"}, {"0e7", "0"},
		{"1", "1e0"}, {"1.0", "1e0"}, {"10e-1", "1e0"}, {"100", "1e2"}, {"1e2", "1e2"}, {"1E+2", "1e2"},
		{"-12.50", "-125e-1"}, {"0.0125", "125e-4"}, {"00012", "12e0"},
		{"1e99999999999999999999", "1e99999999999999999999"},
		{"123456789012345678901234567890", "12345678901234567890123456789e1"},
	} {
		if got := canonicalNumber(test.in); got != test.want {
			t.Errorf("%s becomes %s, expected %s", test.in, got, test.want)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.50,{"b":null}]}`, `"x"`, `1e5`, `{`, `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once := canonical(raw)
		if strings.ContainsRune(once, '\n') && once != string(raw) {
			t.Errorf("%q has a line break", once)
		}
		_ = TemplateHash(inlineTemplate(raw), time.Time{}, 0)
	})
}
