package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"machinist.dev/machinist/pkg/provider"
)

func classCases() []testCase {
	return []testCase{
		{name: "NameAndTimes", rule: "Name is a DNS label. CallTimeout and CreateSettle are positive.", test: nameAndTimes},
		{name: "ValidateAcceptsWhatWorks",
			rule: "Validate accepts valid providerSpecs with credentials, without credentials, and with credentials that " +
				"only the cloud can reject.",
			test: validateAcceptsWhatWorks},
		{name: "InvalidSpecsAreRefusedByField",
			rule: "Validate, Capacity and Create refuse an invalid providerSpec with InvalidArgument, and name the field.",
			test: invalidSpecsAreRefused},
		{name: "SpecIsDecodedStrictly",
			rule: "Unknown and repeated fields, other kinds and API versions, and anything that is not an object are refused " +
				"with InvalidArgument.",
			test: specIsDecodedStrictly},
		{name: "CredentialsAreDecodedStrictly",
			rule:  "Validate refuses malformed credentials with InvalidArgument. All other calls with malformed credentials also fail.",
			needs: []requirement{needsMalformed}, test: credentialsAreDecodedStrictly},
		{name: "CredentialsNameNoSources",
			rule: "Credentials never cause the driver to read a file, fetch a URL or run a command.",
			test: credentialsNameNoSources},
		{name: "RejectedCredentials",
			rule: "Calls with credentials that the cloud rejects fail with Unauthenticated or PermissionDenied, never with " +
				"NotFound or Gone.",
			needs: []requirement{needsRejected}, test: rejectedCredentials},
		{name: "CapacityIsPlausible", rule: "Capacity returns no negative quantities, or is Unimplemented.",
			test: capacityIsPlausible},
	}
}

func nameAndTimes(t *trial) {
	name := t.driver.Name()
	if len(name) > 63 || !nodeNameFormat.MatchString(name) || strings.Contains(name, ".") {
		t.Errorf("Name %q is not a DNS label", name)
	}
	if again := t.restart().Name(); again != name {
		t.Errorf("Name is %q, and %q after a restart", name, again)
	}
	if d := provider.CallTimeout(t.driver.driver); d <= 0 {
		t.Errorf("CallTimeout %s is not positive", d)
	}
	if d := provider.CreateSettle(t.driver.driver); d <= 0 {
		t.Errorf("CreateSettle %s is not positive: no cloud carries out a call and shows the result at once", d)
	}
}

func validateAcceptsWhatWorks(t *trial) {
	for name, spec := range map[string][]byte{"Class": t.Class.Spec, "OtherSpec": t.OtherSpec} {
		if len(spec) == 0 {
			continue
		}
		for with, credentials := range map[string]provider.Credentials{"no": {}, "good": t.Class.Credentials,
			"rejected": t.RejectedCredentials} {
			err := t.driver.Validate(t.Context(),
				provider.ValidateRequest{Class: provider.Class{Spec: spec, Credentials: credentials}})
			if err != nil {
				t.Errorf("Validate of %s with %s credentials: %v", name, with, err)
			}
		}
	}
}

func invalidSpecsAreRefused(t *trial) {
	for _, invalid := range t.InvalidSpecs {
		t.checkSpecRefused(invalid)
	}
}

func (t *trial) checkSpecRefused(invalid InvalidSpec) {
	t.Helper()
	class := provider.Class{Spec: invalid.Spec, Credentials: t.Class.Credentials}
	s := t.subject()
	create := t.createRequest(s)
	create.Class = class
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"Validate", func() error { return t.driver.Validate(t.Context(), provider.ValidateRequest{Class: class}) }},
		{"Capacity", func() error {
			_, err := t.driver.Capacity(t.Context(), provider.CapacityRequest{Class: class})
			if provider.CodeOf(err) == provider.Unimplemented {
				return provider.InvalidField(invalid.Field, "not checked")
			}
			return err
		}},
		{"Create", func() error {
			in, err := t.driver.Create(t.Context(), create)
			if in != nil && err == nil {
				s.providerID, s.scope = in.ProviderID, in.Scope
			}
			return err
		}},
	} {
		err := call.do()
		attempted := fmt.Sprintf("%s of an invalid providerSpec (%s)", call.name, invalid.Name)
		if !t.wantCode(err, attempted, provider.InvalidArgument) || invalid.Field == "" {
			continue
		}
		if e, _ := errors.AsType[*provider.Error](err); e.Field != invalid.Field {
			t.Errorf("%s: the error is about field %q, want %q: %v", attempted, e.Field, invalid.Field, err)
		}
	}
}

func specIsDecodedStrictly(t *trial) {
	var fields map[string]json.RawMessage
	t.must(json.Unmarshal(t.Class.Spec, &fields), "Config.Class.Spec is not a JSON object")
	with := func(key, value string) []byte {
		changed := maps.Clone(fields)
		changed[key] = json.RawMessage(value)
		raw, err := json.Marshal(changed)
		t.must(err, "encode a providerSpec")
		return raw
	}
	without := func(key string) []byte {
		changed := maps.Clone(fields)
		delete(changed, key)
		raw, err := json.Marshal(changed)
		t.must(err, "encode a providerSpec")
		return raw
	}
	body := bytes.TrimPrefix(bytes.TrimSpace(t.Class.Spec), []byte("{"))
	for _, invalid := range []struct {
		name  string
		spec  []byte
		field string
	}{
		{"an unknown field", with("conformanceUnknown", "1"), "conformanceUnknown"},
		{"a field with the path of a local file", with("credentialsFile", `"/etc/passwd"`), "credentialsFile"},
		{"another kind", with("kind", `"ConformanceOther"`), "kind"},
		{"no kind", without("kind"), "kind"},
		{"a kind that is not a string", with("kind", "7"), "kind"},
		{"another API version", with("apiVersion", `"conformance.example.com/v9"`), "apiVersion"},
		{"no API version", without("apiVersion"), "apiVersion"},
		{"a field twice", slices.Concat([]byte(`{"kind":`), fields["kind"], []byte(","), body), "kind"},
		{"null", []byte("null"), ""},
		{"text", []byte(`"{}"`), ""},
		{"a list", slices.Concat([]byte("["), t.Class.Spec, []byte("]")), ""},
		{"an empty object", []byte("{}"), ""},
		{"half an object", t.Class.Spec[:len(t.Class.Spec)/2], ""},
		{"something after the object", slices.Concat(t.Class.Spec, []byte("{}")), ""},
		{"nothing", nil, ""},
		{"a megabyte of brackets", bytes.Repeat([]byte("["), 1<<20), ""},
		{"a megabyte of objects", bytes.Repeat([]byte(`{"a":`), 1<<18), ""},
	} {
		t.checkSpecRefused(InvalidSpec{Name: invalid.name, Spec: invalid.spec, Field: invalid.field})
	}
}

// cloudCall is a driver call that needs an answer of the cloud. The function returns an error unless the call
// succeeded.
type cloudCall struct {
	name string
	do   func(context.Context) error
}

// calls returns all calls of the driver that must send requests to the cloud. All calls except Create use the subject's
// instance. Create starts an instance for another machine. The calls are sorted: reads come first, and deletions last.
func (t *trial) calls(class provider.Class, s *subject) []cloudCall {
	fresh := t.subject()
	create := t.createRequest(fresh)
	byID, byTags, deleteByID, deleteByTags := t.byID(s), t.byTags(s), t.deleteByID(s), t.deleteByTags(s)
	list := provider.ListRequest{Class: class, ClusterID: s.cluster}
	create.Class, byID.Class, byTags.Class, deleteByID.Class, deleteByTags.Class = class, class, class, class, class
	get := func(req provider.GetRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := t.driver.Get(ctx, req); return err }
	}
	del := func(req provider.DeleteRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := t.driver.Delete(ctx, req); return err }
	}
	var optional []cloudCall
	if _, interrupts := t.driver.driver.(provider.Interrupter); interrupts {
		interruptions := provider.InterruptionsRequest{Class: class, ClusterID: s.cluster}
		optional = append(optional, cloudCall{"Interruptions", func(ctx context.Context) error {
			_, err := t.driver.Interruptions(ctx, interruptions)
			return err
		}})
	}
	if _, switches := t.driver.driver.(provider.Power); switches {
		power := t.powerRequest(s, provider.PowerOn) // The instance is on, so nothing changes.
		power.Class = class
		optional = append(optional, cloudCall{"SetPower", func(ctx context.Context) error {
			_, err := t.driver.SetPower(ctx, power)
			return err
		}})
	}
	return append(optional, []cloudCall{
		{"Get by provider ID", get(byID)},
		{"Get by tags", get(byTags)},
		{"List", func(ctx context.Context) error { _, err := t.driver.List(ctx, list); return err }},
		{"Create", func(ctx context.Context) error { _, err := t.driver.Create(ctx, create); return err }},
		{"Delete by tags", del(deleteByTags)},
		{"Delete by provider ID", del(deleteByID)},
	}...)
}

func credentialsAreDecodedStrictly(t *trial) {
	s := t.subject()
	t.launch(s)
	for i, malformed := range t.MalformedCredentials {
		class := provider.Class{Spec: t.Class.Spec, Credentials: malformed}
		what := fmt.Sprintf("with MalformedCredentials[%d]", i)
		t.wantCode(t.driver.Validate(t.Context(), provider.ValidateRequest{Class: class}), "Validate "+
			what, provider.InvalidArgument)
		for _, call := range t.calls(class, s) {
			t.wantCode(call.do(t.Context()), call.name+" "+what, provider.InvalidArgument, provider.Unauthenticated)
		}
	}
}

func rejectedCredentials(t *trial) {
	s := t.subject()
	t.launch(s)
	class := provider.Class{Spec: t.Class.Spec, Credentials: t.RejectedCredentials}
	for _, call := range t.calls(class, s) {
		t.wantCode(call.do(t.Context()), call.name+" with RejectedCredentials", provider.Unauthenticated,
			provider.PermissionDenied)
	}
	t.awaitVisible(s)
}

func capacityIsPlausible(t *trial) {
	got, err := t.driver.Capacity(t.Context(), provider.CapacityRequest{Class: t.Class})
	if provider.CodeOf(err) == provider.Unimplemented {
		return
	}
	t.must(err, "Capacity")
	for name, quantity := range got.Resources {
		if name == "" || quantity.Sign() < 0 {
			t.Errorf("Capacity: resource %q is %s", name, quantity.String())
		}
	}
	for field, value := range map[string]string{
		"InstanceType": got.InstanceType, "Region": got.Region, "Zone": got.Zone, "Architecture": got.Architecture,
		"OperatingSystem": got.OperatingSystem,
	} {
		if len(value) > 63 && field != "InstanceType" || len(value) > 256 {
			t.Errorf("Capacity: %s %q is too long", field, value)
		}
	}
}

// forbiddenResource is a resource that a driver must not use: a file, a URL, or a command that creates a file. An
// attacker could put a reference to it into credentials.
type forbiddenResource struct {
	file, canary, url string
	fetched           atomic.Int32
	close             func()
}

// newBait stores the secret in a file and serves it on a URL. A test puts a reference into the credentials: the file,
// the URL, or a command that creates the canary file. If the canary file exists, the driver has run the command.
func newBait(secret []byte) (*forbiddenResource, error) {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return nil, err
	}
	b := &forbiddenResource{file: filepath.Join(dir, "secret"), canary: filepath.Join(dir, "canary")}
	if err := os.WriteFile(b.file, secret, 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b.fetched.Add(1)
		_, _ = w.Write(secret)
	})}
	go func() { _ = server.Serve(listener) }()
	b.url = (&url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/secret"}).String()
	b.close = func() { _, _ = server.Close(), os.RemoveAll(dir) }
	return b, nil
}

func credentialsNameNoSources(t *trial) {
	good := map[string][]byte{}
	for _, key := range t.Class.Credentials.Keys() {
		value, _ := t.Class.Credentials.Get(key)
		good[key] = value.Reveal()
	}
	if len(good) == 0 {
		t.skip("the driver needs no credentials")
	}
	for key := range good {
		t.checkFollowsNoReference(good, key)
	}
}

// checkFollowsNoReference replaces the value of a key with references to this value, or adds such references under
// other keys.
func (t *trial) checkFollowsNoReference(good map[string][]byte, key string) {
	t.Helper()
	b, err := newBait(good[key])
	t.must(err, "lay out bait")
	defer b.close()
	works := func(change func(map[string][]byte)) bool {
		changed := maps.Clone(good)
		change(changed)
		class := provider.Class{Spec: t.Class.Spec, Credentials: provider.NewCredentials(changed)}
		// If a call succeeds although the value is only a reference, the driver has read the file or URL with the valid
		// value.
		_ = t.driver.Validate(t.Context(), provider.ValidateRequest{Class: class})
		_, err := t.driver.List(t.Context(), provider.ListRequest{Class: class, ClusterID: t.ClusterID})
		return err == nil
	}
	// If the driver works without the key, a successful call proves nothing.
	matters := !works(func(c map[string][]byte) { c[key] = []byte("conformance-garbage") })
	touch := fmt.Sprintf("touch %s", b.canary)
	for _, value := range []string{
		b.file, "file://" + b.file, "file:" + b.file, "@" + b.file, "$(cat " + b.file + ")", b.url,
		fmt.Sprintf(`{"file":%q}`, b.file), fmt.Sprintf(`{"url":%q}`, b.url),
		fmt.Sprintf(`{"exec":{"command":"sh","args":["-c",%q]}}`, touch), "$(" + touch + ")", "`" + touch + "`", "|" + touch,
	} {
		if works(func(c map[string][]byte) { c[key] = []byte(value) }) && matters {
			t.Errorf("the driver works with %.12q… as the credentials' %s: it follows the reference", value, key)
		}
	}
	for other, value := range map[string]string{
		key + "File": b.file, key + "_file": b.file, key + "Path": b.file, "file": b.file,
		key + "URL": b.url, "url": b.url, "exec": touch, "command": touch, "credential_process": touch,
	} {
		if works(func(c map[string][]byte) { delete(c, key); c[other] = []byte(value) }) && matters {
			t.Errorf("the driver works with the credentials' key %s instead of %s: it follows the reference", other, key)
		}
	}
	if b.fetched.Load() > 0 {
		t.Errorf("the driver fetched a URL that the credentials contain")
	}
	if _, err := os.Stat(b.canary); err == nil {
		t.Errorf("the driver ran a command that the credentials contain")
	}
}
