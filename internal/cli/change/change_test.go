package change

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestBetween(t *testing.T) {
	object := func(text string) any {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, test := range map[string]struct {
		from, to string
		want     []string
	}{
		"nothing":                {`{"a":1,"b":[1,2]}`, `{"b":[1,2],"a":1}`, nil},
		"a field":                {`{"a":{"version":"v1"}}`, `{"a":{"version":"v2"}}`, []string{"spec.a.version: v1 → v2"}},
		"set and removed":        {`{"a":"x","c":2}`, `{"b":true,"c":2}`, []string{"spec.a: x removed", "spec.b: + true"}},
		"a group of fields":      {`{}`, `{"a":{"b":1,"c":"d"}}`, []string{"spec.a.b: + 1", "spec.a.c: + d"}},
		"a group goes":           {`{"a":{"b":1}}`, `{}`, []string{"spec.a.b: 1 removed"}},
		"lists differ as wholes": {`{"a":[1]}`, `{"a":[1,2]}`, []string{"spec.a: [1] → [1,2]"}},
		"labels": {`{"labels":{"app":"a"}}`, `{"labels":{"app":"b","x/y":""}}`,
			[]string{"spec.labels[app]: a → b", `spec.labels[x/y]: + ""`}},
		"a domain of a placement": {
			`{"placement":{"domains":[{"name":"a","weight":1,"options":[{"className":"x"}]},{"name":"b","options":[{"className":"y"}]}]}}`,
			`{"placement":{"domains":[{"name":"a","weight":2,"options":[{"className":"z"},{"className":"x"}]},{"name":"c","options":[{"className":"y"}]}]}}`,
			[]string{`spec.placement.domains[a].options: ["x"] → ["z","x"]`, "spec.placement.domains[a].weight: 1 → 2",
				`spec.placement.domains[b].options: ["y"] removed`, `spec.placement.domains[c].options: + ["y"]`}},
		"the order of domains": {
			`{"placement":{"domains":[{"name":"a","options":[{"className":"x"}]},{"name":"b","options":[{"className":"y"}]}]}}`,
			`{"placement":{"domains":[{"name":"b","options":[{"className":"y"}]},{"name":"a","options":[{"className":"x"}]}]}}`,
			[]string{`spec.placement.domains: ["a","b"] → ["b","a"]`}},
		"a placement instead of a class": {
			`{"classRef":"x"}`, `{"placement":{"maxSkew":1,"domains":[{"name":"a","options":[{"className":"x"}]}]}}`,
			[]string{"spec.classRef: x removed", `spec.placement.domains[a].options: + ["x"]`, "spec.placement.maxSkew: + 1"}},
		"another form": {`{"a":{"b":1}}`, `{"a":7}`, []string{`spec.a: {"b":1} → 7`}},
	} {
		t.Run(name, func(t *testing.T) {
			changes, err := Diff("spec", object(test.from), object(test.to))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range changes {
				got = append(got, c.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	changes, err := Diff("spec", json.RawMessage(`{"a":12345678901234567890}`),
		json.RawMessage(`{"a":12345678901234567891}`))
	if err != nil || len(changes) != 1 {
		t.Errorf("large numbers that differ: %v, %v", changes, err)
	}
}
