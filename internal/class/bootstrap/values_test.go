package bootstrap

import (
	"strings"
	"testing"
)

// Rule: values-of-the-class.
func TestReplaceValues(t *testing.T) {
	values := map[string]string{"proxy": "http://p:3128", "odd": "<<MACHINE_NAME>> <<!MACHINE_NAME>> <<VALUES.proxy>> <<EOF>>", "none": ""}
	for template, want := range map[string]string{
		"a <<VALUES.proxy>>, <<VALUES.proxy>>":     "a http://p:3128, http://p:3128",
		"%3C%3CVALUES.proxy%3E%3E":                 "http%3A%2F%2Fp%3A3128",
		"<<!VALUES.proxy>> <<!!VALUES.proxy>>":     "<<VALUES.proxy>> <<!VALUES.proxy>>",
		"%3C%3C%21VALUES.proxy%3E%3E":              "%3C%3CVALUES.proxy%3E%3E",
		"<<VALUES.odd>> of <<MACHINE_NAME>>":       values["odd"] + " of m",
		"it is <<VALUES.none>>empty":               "it is empty",
		"<<VALUES>> <<values.proxy>> <<!!x>>":      "<<VALUES>> <<values.proxy>> <<!!x>>",
		"<<!MACHINE_NAME>> and <<!!MACHINE_NAME>>": "<<MACHINE_NAME>> and <<!MACHINE_NAME>>",
	} {
		replaced, err := ReplaceValues([]byte(template), values)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		got, err := Render(replaced, Values{MachineName: "m"})
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", template, got, err, want)
		}
	}
	_, err := ReplaceValues([]byte("<<VALUES.b>> <<VALUES.a>> <<VALUES.b>> <<VALUES.proxy>>"), values)
	if err == nil || !strings.Contains(err.Error(), "<<VALUES.a>>, <<VALUES.b>>, for which spec.values has no value") {
		t.Errorf("with missing values: %v", err)
	}
}
