package provider_test

import (
	"errors"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

func TestDecodeSpecNamesTheRefusedField(t *testing.T) {
	type spec struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Disk       struct {
			SizeGiB int `json:"sizeGiB"`
		} `json:"disk"`
	}
	const head = `{"apiVersion":"acme/v1","kind":"Acme",`
	for name, tc := range map[string]struct {
		raw, field, message string
	}{
		"another kind":          {`{"apiVersion":"acme/v1","kind":"Other","unknown":1}`, "kind", `"Other"`},
		"another API version":   {`{"apiVersion":"acme/v2","kind":"Acme"}`, "apiVersion", `"acme/v2"`},
		"no kind":               {`{"apiVersion":"acme/v1"}`, "kind", `must be "Acme"`},
		"a kind that is a list": {`{"apiVersion":"acme/v1","kind":["Acme"]}`, "kind", "not array"},
		"an unknown field":      {head + `"disk":{"sizeGB":1}}`, "disk.sizeGB", "is not a field"},
		"another case":          {head + `"Disk":{}}`, "Disk", "is not a field"},
		"a field twice":         {head + `"disk":{},"disk":{}}`, "disk", "twice"},
		"another type":          {head + `"disk":{"sizeGiB":"ten"}}`, "disk.sizeGiB", "of type int, not string"},
		"a long name":           {head + `"` + strings.Repeat("x", 1000) + `":1}`, strings.Repeat("x", 128), "is not a field"},
		"nothing":               {"", "", "must be an object"},
		"null":                  {"null", "", "must be an object"},
		"a list":                {`[{}]`, "", "must be an object"},
		"half an object":        {head, "", "not valid JSON"},
		"two objects":           {head + `"disk":{}} {}`, "", "not valid JSON"},
		"too deep":              {head + `"disk":` + strings.Repeat("[", 20000), "", "not valid JSON"},
		"too long":              {strings.Repeat(" ", provider.MaxSpecBytes) + "{}", "", "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			var into spec
			err := provider.DecodeSpec([]byte(tc.raw), "acme/v1", "Acme", &into)
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Code != provider.InvalidArgument || e.Field != tc.field || !strings.Contains(e.Message, tc.message) {
				t.Errorf("got %v, want InvalidArgument about field %q that contains %q", err, tc.field, tc.message)
			}
		})
	}
	var into spec
	if err := provider.DecodeSpec([]byte(" "+head+`"disk":{"sizeGiB":10}}`), "acme/v1", "Acme", &into); err != nil ||
		into.Disk.SizeGiB != 10 {
		t.Errorf("a valid providerSpec: %v, %+v", err, into)
	}
}
