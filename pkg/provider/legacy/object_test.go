package legacy

import (
	"fmt"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

func parse(t *testing.T, spec string) *Object {
	t.Helper()
	o, err := Parse(provider.NewSecret([]byte(spec)))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func found(o *Object) string {
	var all []string
	for _, f := range o.Findings() {
		all = append(all, fmt.Sprintf("%s %s %s", f.Level, f.Code, f.Path))
	}
	return strings.Join(all, "\n")
}

func TestUnreadFieldsAreReportedByPath(t *testing.T) {
	o := parse(t, `{"read":"a","above":{"read":1,"not":{"x":1}},"list":[{"read":true},{"read":false,"not":0}],"not":[1],`+
		`"null":null,"map":{"a":"b"},"known":{"a":{}}}`)
	o.String("read")
	o.Object("above").Int("read")
	for _, one := range o.Objects("list") {
		one.Bool("read")
	}
	o.Map("map")
	o.MarkRead("known")
	want := "Loss UnknownField above.not\nLoss UnknownField list[1].not\nLoss UnknownField not"
	if got := found(o); got != want {
		t.Errorf("findings\n%s\nwant\n%s", got, want)
	}
}

func TestValuesOfAnotherTypeAreBlockersAndReadAsZero(t *testing.T) {
	o := parse(t, `{"a":1,"b":"x","c":1.5,"d":"x","e":{"k":1},"f":["a",1],"g":[1],"h":"x","i":7,"j":[]}`)
	if o.String("a") != "" || o.Bool("b") || o.Int("c") != 0 || o.Number("d") != nil || len(o.Map("e")) > 0 ||
		len(o.Strings("f")) > 0 || len(o.Objects("g")) > 0 || o.Object("h").String("x") != "" ||
		o.RequiredString("i") != "" ||
		o.RequiredString("k") != "" {
		t.Error("a value of another type was returned")
	}
	o.String("j")
	want := ""
	for _, path := range strings.Split("a b c d e f g h i j", " ") {
		want += "Blocker InvalidField " + path + "\n"
	}
	if got := found(o); got != want+"Blocker RequiredField k" {
		t.Errorf("findings\n%s\nwant\n%s", got, want)
	}
}

func TestValuesMayBeWrappedOrStrings(t *testing.T) {
	o := parse(t, `{"a":{"value":"x"},"b":{"value":"true"},"c":"12","d":{"value":0.5},"e":[{"value":"y"}],"f":{"k":{"value":"z"}}}`)
	for text, want := range map[string]float64{"0.5": 0.5, "500m": 0.5, "-1": -1, "1k": 1000} {
		quantity, err := Parse(provider.NewSecret([]byte(`{"d":"` + text + `"}`)))
		if err != nil {
			t.Fatal(err)
		}
		if got := quantity.Number("d"); got == nil || *got != want {
			t.Errorf("the quantity %s is read as %v", text, got)
		}
	}
	price := o.Number("d")
	if o.String("a") != "x" || !o.Bool("b") || o.Int("c") != 12 || price == nil || *price != 0.5 ||
		fmt.Sprint(o.Strings("e"), o.Map("f")) != "[y] map[k:z]" {
		t.Errorf("%v %v", o.fields, found(o))
	}
	if got := found(o); got != "" {
		t.Errorf("findings\n%s", got)
	}
}

func TestParseAcceptsOnlyOneObject(t *testing.T) {
	for _, spec := range []string{"", "null", "[]", `"a"`, `{`, `{}{}`, `{"a":"` + strings.Repeat("x", provider.MaxSpecBytes) + `"}`} {
		if _, err := Parse(provider.NewSecret([]byte(spec))); provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("%.20q: %v", spec, err)
		}
	}
}

func TestLongFieldNamesAreTruncatedInPaths(t *testing.T) {
	o := parse(t, `{"`+strings.Repeat("x", 1000)+`":1}`)
	if all := o.Findings(); len(all) != 1 || len(all[0].Path) > 200 {
		t.Errorf("%v", all)
	}
}

func TestEmptyFieldsHaveNoContent(t *testing.T) {
	o := parse(t, `{"a":{"b":{},"c":[],"d":"","e":null},"f":[""],"g":false,"h":0,"i":[{"j":"x"}],"options":{}}`)
	for name, want := range map[string]bool{"a": false, "f": false, "g": true, "h": true, "i": true, "options": false,
		"missing": false} {
		if got := o.HasContent(name); got != want {
			t.Errorf("%s has content: %t", name, got)
		}
	}
	if !o.Has("options") {
		t.Error("an empty object does not count as set")
	}
	o.MarkRead("g", "h", "i")
	if got := found(o); got != "" {
		t.Errorf("empty fields are reported: %s", got)
	}
}

// Old systems decode their descriptions with encoding/json.
func TestNamesAreReadWithoutCase(t *testing.T) {
	o := parse(t, `{"VMSize":"large","vmsize":"small","Disk":{"SIZE":"1"},"Exact":"a","exact":"b"}`)
	if got := o.String("vmSize") + o.Object("disk").String("size") + o.String("exact"); got != "large1b" {
		t.Errorf("got %s", got)
	}
	if got := found(o); !strings.Contains(got, "Exact") || strings.Contains(got, "disk") {
		t.Errorf("got the findings %s", got)
	}
}
