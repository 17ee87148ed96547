package decode

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

var hostile = []string{
	`null`, `true`, `""`, `"0"`, `0`, `-1`, `-0`, `-0.0`, `1.0`, `1.5`, `1e2`, `1e21`, `1E400`,
	`2147483647`, `2147483648`, `4294967296`, `9007199254740993`, `9223372036854775807`, `9223372036854775808`,
	`99999999999999999999`, `1e999999999999`, `"1e999999999999"`, `"1e3"`, `"9223372036854775808"`, `"1E"`, `"1u"`, `"1n"`,
	`"3 weeks"`, `"10 minutes"`, `"1d"`, `"-5m"`, `"5"`, `"1µs"`, `"99999h99999h"`, `"0.001ms"`, `"1h30"`,
	`".5h"`, `"P1D"`,
	`"2026-01-01"`, `"2026-01-01T00:00:00"`, `"2026-02-31T00:00:00Z"`, `"2026-01-01t00:00:00z"`,
	`"0000-01-01T00:00:00+01:00"`,
	`"9999-12-31T23:59:59-01:00"`, `"2016-12-31T23:59:60Z"`, `"2026-01-01T00:00:00,5Z"`, `"2026-01-01T24:00:00Z"`,
	`"50%"`, `"150%"`, `"-1%"`, `"%"`, `"1.5%"`, `"050%"`, `"١%"`, `"größer 🚀"`, `"\u0000"`, `"\ud800"`, `"a\nb"`,
	`[]`, `{}`, `[null]`, `{"":null}`, `{"a":"b"}`, `[[]]`, `["a","a"]`,
}

type generator struct {
	t         testing.TB
	r         *rand.Rand
	hostility int
}

func (g generator) chance(perThousand int) bool { return g.r.IntN(1000) < perThousand }

func (g generator) object(k kind) []byte {
	object := map[string]any{}
	for _, name := range []string{"spec", "status"} {
		object[name] = g.value(k.schema.Properties[name])
	}
	if !g.chance(2 * g.hostility) {
		g.reconcile(object["spec"])
	}
	body, err := json.Marshal(object)
	if err != nil {
		g.t.Fatalf("encode a generated %s: %v", k.name, err)
	}
	return body
}

func (g generator) reconcile(value any) {
	spec, ok := value.(map[string]any)
	if !ok {
		return
	}
	machine := spec
	if template, ok := spec["template"].(map[string]any); ok {
		labels := map[string]any{"pool": "a"}
		template["metadata"] = map[string]any{"labels": labels}
		spec["selector"] = map[string]any{"matchLabels": labels}
		machine, _ = template["spec"].(map[string]any)
		delete(machine, "providerID")
		delete(machine, "powerState")
		if g.chance(900) {
			delete(spec, "versionSteps") // Random versions are rarely in ascending order.
		}
		delete(spec, "progressDeadline") // A random progressDeadline is often shorter than minReadySeconds.
	}
	if _, ok := machine["timeouts"]; !ok {
		return
	}
	if _, ok := machine["expireAfter"]; ok && g.chance(900) {
		machine["expireAfter"] = samplePattern(g.t, g.r, `^[1-9][0-9]?[mh]$`)
	}
	if g.chance(500) {
		for _, name := range []string{"provider", "providerSpec", "credentialsRef", "userDataRef"} {
			delete(machine, name)
		}
		machine["classRef"] = map[string]any{"name": "small"}
	} else {
		delete(machine, "classRef")
		machine["provider"], machine["providerSpec"] = "sim", map[string]any{}
	}
}

func (g generator) value(s apiextensionsv1.JSONSchemaProps) any {
	switch {
	case g.chance(g.hostility):
		return json.RawMessage(hostile[g.r.IntN(len(hostile))])
	case len(s.Enum) > 0:
		return json.RawMessage(s.Enum[g.r.IntN(len(s.Enum))].Raw)
	case s.XIntOrString && g.chance(500), s.Type == "string":
		return g.text(s)
	case s.XIntOrString, s.Type == "integer":
		return g.number(s)
	case s.Type == "boolean":
		return g.chance(500)
	case s.Type == "array":
		list := []any{}
		for range g.r.IntN(4) {
			list = append(list, g.value(*s.Items.Schema))
		}
		if len(s.XListMapKeys) > 0 && !g.chance(g.hostility) {
			list = withoutDuplicates(list, s.XListMapKeys)
		}
		return list
	case s.AdditionalProperties != nil:
		return g.dictionary(s)
	case s.XPreserveUnknownFields != nil:
		return json.RawMessage([]string{`{}`, `{"a":{"b":[1,2.5,null]}}`,
			`{"apiVersion":"v1","kind":"X","n":1e300}`}[g.r.IntN(3)])
	default:
		return g.properties(s)
	}
}

func withoutDuplicates(list []any, keys []string) []any {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(item any) bool {
		object, ok := item.(map[string]any)
		if !ok {
			return false
		}
		id := ""
		for _, key := range keys {
			id += fmt.Sprintf("%v\n", object[key])
		}
		duplicate := seen[id]
		seen[id] = true
		return duplicate
	})
}

func (g generator) properties(s apiextensionsv1.JSONSchemaProps) any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		presence := 600
		if slices.Contains(s.Required, name) {
			presence = 1000 - g.hostility
		}
		if g.chance(presence) {
			object[name] = g.value(s.Properties[name])
		}
	}
	if g.chance(g.hostility) {
		object["unknown"] = "x"
	}
	return object
}

func (g generator) dictionary(s apiextensionsv1.JSONSchemaProps) any {
	object := map[string]any{}
	for range g.r.IntN(4) {
		key := samplePattern(g.t, g.r, `^([a-z]{1,5}\.[a-z]{2,3}/)?[a-z]{1,6}$`)
		if g.chance(g.hostility) {
			key = damage(g.r, key)
		}
		object[key] = g.value(*s.AdditionalProperties.Schema)
	}
	return object
}

func (g generator) text(s apiextensionsv1.JSONSchemaProps) string {
	text := "words with größe"
	if pattern := patternOf(s); pattern != "" {
		text = samplePattern(g.t, g.r, pattern)
	}
	if g.chance(g.hostility) {
		text = damage(g.r, text)
	}
	if g.chance(g.hostility / 2) {
		text = strings.Repeat(text+"x", 400)
	}
	return text
}

func (g generator) number(s apiextensionsv1.JSONSchemaProps) any {
	lowest, highest := int64(0), int64(1)<<53-1
	if s.Minimum != nil {
		lowest = int64(*s.Minimum)
	}
	if s.Maximum != nil {
		highest = int64(*s.Maximum)
	}
	switch g.r.IntN(4) {
	case 0:
		return lowest
	case 1:
		return highest
	default:
		return lowest + g.r.Int64N(min(highest-lowest, 100)+1)
	}
}
