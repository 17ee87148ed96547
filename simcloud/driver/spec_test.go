package driver_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/driver"
)

func TestInvalidProviderSpecsAreRefused(t *testing.T) {
	s := newSim(t)
	long := strings.Repeat("x", 60<<10)
	for name, test := range map[string]struct{ raw, field string }{
		"empty":               {``, ""},
		"null":                {`null`, ""},
		"array":               {`[]`, ""},
		"string":              {`"sim"`, ""},
		"cut off":             {`{"apiVersion":`, ""},
		"two documents":       {string(spec()) + `{}`, ""},
		"not UTF-8":           {"{\"apiVersion\":\"\xff\xfe\"}", "apiVersion"},
		"1 MiB":               {`{"region":"` + strings.Repeat("x", 1<<20) + `"}`, ""},
		"deep":                {`{"region":` + strings.Repeat("[", 50000) + `}`, ""},
		"empty object":        {`{}`, "apiVersion"},
		"another API version": {string(spec("apiVersion", "sim.machinist.dev/v1")), "apiVersion"},
		"another kind":        {string(spec("kind", "AzureMachine")), "kind"},
		"fields of another kind": {`{"apiVersion":"azure.machinist.dev/v1beta1","kind":"AzureMachine","vmSize":"x"}`,
			"apiVersion"},
		"unknown field":                {string(spec("size", "small")), "size"},
		"field in other letter case":   {string(spec("Region", "sim-1")), "Region"},
		"long unknown field":           {string(spec(long, "x")), strings.Repeat("x", 128) + "…"},
		"duplicate key":                {strings.Replace(string(spec()), `{`, `{"region":"sim-2",`, 1), "region"},
		"number for a string":          {strings.Replace(string(spec()), `"small"`, `7`, 1), "instanceType"},
		"object for a string":          {strings.Replace(string(spec()), `"small"`, `{"a":{}}`, 1), "instanceType"},
		"no region":                    {string(spec("region", "")), "region"},
		"null region":                  {strings.Replace(string(spec()), `"sim-1"`, `null`, 1), "region"},
		"no type":                      {string(spec("instanceType", "")), "instanceType"},
		"no image":                     {string(spec("image", "")), "image"},
		"path in a name":               {string(spec("region", "../admin")), "region"},
		"line break in a name":         {string(spec("zone", "sim-1a\n")), "zone"},
		"template in a name":           {string(spec("image", "<<MACHINE_NAME>>")), "image"},
		"unicode in a name":            {string(spec("image", "ｓim-os-1")), "image"},
		"long name":                    {string(spec("image", long)), "image"},
		"endpoint that is not allowed": {string(spec("endpoint", "http://169.254.169.254")), "endpoint"},
		"endpoint with more text":      {string(spec("endpoint", s.url+"@evil")), "endpoint"},
		"tag of the driver":            {withTags(`{"machinist-cluster":"other"}`), "tags.machinist-cluster"},
		"line break in a tag":          {withTags(`{"team":"a\nb"}`), "tags.team"},
		"equal sign in a tag":          {withTags(`{"a=b":"c"}`), "tags.a=b"},
		"text for tags":                {withTags(`"blue"`), "tags"},
		"file for an endpoint":         {string(spec("endpoint", "file:///etc/passwd")), "endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			class := provider.Class{Spec: []byte(test.raw), Credentials: credentials(token)}
			req := createRequest("a")
			req.Class = class
			_, createErr := s.driver.Create(t.Context(), req)
			_, capacityErr := s.driver.Capacity(t.Context(), provider.CapacityRequest{Class: class})
			for operation, err := range map[string]error{
				"Validate": s.driver.Validate(t.Context(), provider.ValidateRequest{Class: class}),
				"Create":   createErr, "Capacity": capacityErr,
			} {
				e, ok := errors.AsType[*provider.Error](err)
				if !ok || e.Code != provider.InvalidArgument || e.Field != test.field {
					t.Fatalf("%s: %v, expected InvalidArgument at %q", operation, err, test.field)
				}
				if len(err.Error()) > 512 {
					t.Errorf("%s: the message has %d bytes", operation, len(err.Error()))
				}
			}
		})
	}
	if statistics, err := s.admin.Statistics(t.Context()); err != nil || len(statistics.Calls) > 0 {
		t.Errorf("the cloud was called: %v %v", statistics.Calls, err)
	}
}

func withTags(tags string) string {
	return strings.Replace(string(spec()), `{`, `{"tags":`+tags+`,`, 1)
}

func TestValidProviderSpecsAreAccepted(t *testing.T) {
	s := newSim(t)
	for name, raw := range map[string][]byte{
		"all fields": spec("endpoint", s.url), "trailing slash": spec("endpoint", s.url+"/"), "no zone": spec("zone", ""),
		"tags":        []byte(withTags(`{"team":"blue","empty":""}`)),
		"white space": []byte(" \n" + string(spec()) + "\n"),
	} {
		if err := s.driver.Validate(t.Context(), provider.ValidateRequest{Class: provider.Class{Spec: raw}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	s := newSim(t)
	for name, test := range map[string]struct {
		data map[string][]byte
		want provider.Code
	}{
		"token":          {map[string][]byte{"token": []byte(token)}, provider.OK},
		"with a newline": {map[string][]byte{"token": []byte(token + "\n")}, provider.OK},
		"with other keys": {map[string][]byte{"token": []byte(token), "endpoint": []byte("http://evil"),
			"exec": []byte("/bin/sh")}, provider.OK},
		"other key":           {map[string][]byte{"Token": []byte(token)}, provider.InvalidArgument},
		"empty":               {map[string][]byte{"token": nil}, provider.InvalidArgument},
		"header in the token": {map[string][]byte{"token": []byte("a\r\nX-Evil: b")}, provider.InvalidArgument},
		"very long token":     {map[string][]byte{"token": make([]byte, 1<<20)}, provider.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			class := provider.Class{Spec: spec(), Credentials: provider.NewCredentials(test.data)}
			err := s.driver.Validate(t.Context(), provider.ValidateRequest{Class: class})
			wantCode(t, err, test.want)
			_, err = s.driver.Capacity(t.Context(), provider.CapacityRequest{Class: class})
			wantCode(t, err, test.want)
		})
	}
	_, err := s.driver.Capacity(t.Context(), provider.CapacityRequest{Class: provider.Class{Spec: spec()}})
	wantCode(t, err, provider.Unauthenticated)
	_, err = s.driver.Capacity(t.Context(),
		provider.CapacityRequest{Class: provider.Class{Spec: spec(), Credentials: credentials("wrong")}})
	wantCode(t, err, provider.Unauthenticated)
}

func TestEndpointIsSelectedAndRecorded(t *testing.T) {
	one, two := newSim(t), newSim(t)
	d := newDriver(t, driver.Options{Endpoints: []string{one.url, two.url + "/"}})
	in, err := d.Create(t.Context(), createRequest("a", "endpoint", two.url))
	must(t, err)
	if one.created() != 0 || two.created() != 1 || in.Scope != two.url {
		t.Fatalf("created %d and %d, scope %q", one.created(), two.created(), in.Scope)
	}
	// The class no longer exists, so only the recorded scope names the endpoint.
	class := provider.Class{Credentials: credentials(token)}
	if _, err := d.Get(t.Context(), provider.GetRequest{Machine: machine("a"), Class: class, ClusterID: cluster,
		ProviderID: in.ProviderID, Scope: in.Scope}); err != nil {
		t.Error(err)
	}
	_, err = d.Get(t.Context(), provider.GetRequest{Machine: machine("a"), Class: class, ClusterID: cluster,
		ProviderID: in.ProviderID, Scope: "http://127.0.0.1:1"})
	wantCode(t, err, provider.FailedPrecondition)
	result, err := d.Update(t.Context(), provider.UpdateRequest{Machine: machine("a"),
		Class: provider.Class{Spec: spec(), Credentials: credentials(token)}, ClusterID: cluster, ProviderID: in.ProviderID,
		Scope: in.Scope})
	if err != nil || result.Outcome != provider.UpdateNeedsReplacement {
		t.Errorf("with the default endpoint: %+v %v", result, err)
	}
	deleted, err := d.Delete(t.Context(), provider.DeleteRequest{Machine: machine("a"), Class: class, ClusterID: cluster,
		ProviderID: in.ProviderID, Scope: in.Scope})
	if err != nil || !deleted.Gone {
		t.Errorf("%+v %v", deleted, err)
	}
	if def, err := d.Create(t.Context(), createRequest("b")); err != nil || def.Scope != "" || one.created() != 1 {
		t.Errorf("without an endpoint: %+v %v", def, err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]driver.Options{
		"no endpoint":          {},
		"not a URL":            {Endpoints: []string{"localhost:80"}},
		"with a user":          {Endpoints: []string{"http://a:b@localhost"}},
		"negative settle time": {Endpoints: []string{"http://localhost"}, CreateSettle: -1},
		"very long pages":      {Endpoints: []string{"http://localhost"}, PageSize: 1 << 20},
		"one of two wrong":     {Endpoints: []string{"http://localhost", "file:///"}},
	} {
		if _, err := driver.New(o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// FuzzValidate checks that every input is either refused with a short message or has only one meaning.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{string(spec()), `{}`, `[]`, `{"apiVersion":1}`, `{"region":{"a":[1,2]},"region":null}`,
		"{\"a\":\"\xff\"}"} {
		f.Add([]byte(seed))
	}
	d, err := driver.New(driver.Options{Endpoints: []string{"http://127.0.0.1:1"}})
	must(f, err)
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := d.Validate(context.Background(), provider.ValidateRequest{Class: provider.Class{Spec: raw}})
		if err == nil {
			if !strings.Contains(string(raw), "SimMachine") && !strings.Contains(string(raw), `\u`) {
				t.Errorf("accepted %q", raw)
			}
			return
		}
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Code != provider.InvalidArgument || len(e.Error()) > 1024 {
			t.Errorf("%q gave %v", raw, err)
		}
	})
}
