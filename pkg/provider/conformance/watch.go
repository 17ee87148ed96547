package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// watched is the driver under test. Every call has its deadline, as in Machinist, and every answer is checked for what
// holds always: it is whole, it keeps to its bounds, and there is no secret in it.
type watched struct {
	driver  provider.Driver
	t       *trial
	timeout time.Duration
}

func (w *watched) Name() string { return w.driver.Name() }

func (w *watched) Validate(ctx context.Context, req provider.ValidateRequest) error {
	_, err := watch(ctx, w, "Validate", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.Validate(ctx, req)
	})
	return err
}

func (w *watched) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return watch(ctx, w, "Capacity", req.Class, nil, func(ctx context.Context) (provider.Capacity, error) {
		return w.driver.Capacity(ctx, req)
	})
}

func (w *watched) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	return watch(ctx, w, "Create", req.Class, w.whole, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.Create(ctx, req)
	})
}

func (w *watched) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	return watch(ctx, w, "Get", req.Class, w.whole, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.Get(ctx, req)
	})
}

func (w *watched) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	return watch(ctx, w, "Update", req.Class, nil, func(ctx context.Context) (provider.UpdateResult, error) {
		return w.driver.Update(ctx, req)
	})
}

func (w *watched) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	return watch(ctx, w, "Delete", req.Class, nil, func(ctx context.Context) (provider.DeleteResult, error) {
		return w.driver.Delete(ctx, req)
	})
}

func (w *watched) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	return watch(ctx, w, "List", req.Class, func(operation string, page provider.ListPage) error {
		for i := range page.Instances {
			_ = w.whole(operation, &page.Instances[i]) // It is there.
		}
		for _, part := range page.Leftovers {
			if part.ID == "" || len(part.ID) > 1024 || part.ClusterID != req.ClusterID || part.MachineUID == "" {
				w.t.Errorf("%s: a leftover has no ID, one longer than 1 KiB, another ClusterID than was asked for or no MachineUID: %+v", operation, part)
			}
		}
		return nil
	}, func(ctx context.Context) (provider.ListPage, error) { return w.driver.List(ctx, req) })
}

// Adopt must only be called where the driver implements it.
func (w *watched) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	return watch(ctx, w, "Adopt", req.Class, w.whole, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.(provider.Adopter).Adopt(ctx, req)
	})
}

// Interruptions must only be called where the driver implements it.
func (w *watched) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
	error) {
	return watch(ctx, w, "Interruptions", req.Class, func(operation string, all []provider.Interruption) error {
		for _, i := range all {
			if !providerIDFormat.MatchString(i.ProviderID) || i.Reason != "" && i.Reason != provider.Preemption &&
				i.Reason != provider.Termination {
				w.t.Errorf("%s: an interruption has no provider ID or a reason that does not exist: %+v", operation, i)
			}
		}
		return nil
	}, func(ctx context.Context) ([]provider.Interruption, error) {
		return w.driver.(provider.Interrupter).Interruptions(ctx, req)
	})
}

// Locate, like the three after it, must only be called where the driver implements it.
func (w *watched) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.Located, error) {
	return watch(ctx, w, "Locate", legacyClass(req.Legacy), func(operation string, all []provider.Located) error {
		for i := range all {
			_ = w.whole(operation, &all[i].Instance) // It is there.
			w.hush(operation+"'s facts", string(all[i].Facts), legacyClass(req.Legacy))
		}
		return nil
	}, func(ctx context.Context) ([]provider.Located, error) {
		return w.driver.(provider.Importer).Locate(ctx, req)
	})
}

// Import returns the credentials beside the rest, which holds none.
func (w *watched) Import(ctx context.Context, req provider.ImportRequest) (out provider.Imported, err error) {
	secret, err := watch(ctx, w, "Import", legacyClass(req.Legacy), nil, func(ctx context.Context) (provider.Imported,
		error) {
		var err error
		out, err = w.driver.(provider.Importer).Import(ctx, req)
		public := out
		public.Credentials = nil
		w.hush("Import's providerSpec", string(out.Spec), legacyClass(req.Legacy))
		return public, err
	})
	secret.Credentials = out.Credentials
	return secret, err
}

func (w *watched) Release(ctx context.Context, req provider.ReleaseRequest) error {
	_, err := watch(ctx, w, "Release", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.(provider.Importer).Release(ctx, req)
	})
	return err
}

func (w *watched) Disown(ctx context.Context, req provider.DisownRequest) error {
	_, err := watch(ctx, w, "Disown", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.(provider.Importer).Disown(ctx, req)
	})
	return err
}

// legacyClass has what must not be shown of an old description. Its Spec may hold secrets too, with much that is none.
func legacyClass(old provider.Legacy) provider.Class {
	return provider.Class{Credentials: old.Credentials}
}

// watch makes a call and checks its outcome. It may run in many goroutines, so it never ends the case.
func watch[T any](ctx context.Context, w *watched, operation string, class provider.Class, check func(string, T) error,
	do func(context.Context) (T, error)) (out T, err error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			w.t.Errorf("%s panicked: %v\n%s", operation, p, debug.Stack())
			err = provider.Errorf(provider.Internal, "%s panicked", operation)
		}
	}()
	out, err = do(ctx)
	if err != nil {
		w.rejection(operation, err)
		w.hush(operation+"'s error", err.Error(), class)
		return out, err
	}
	if check != nil {
		if err := check(operation, out); err != nil {
			return out, err
		}
	}
	var shown bytes.Buffer
	encoder := json.NewEncoder(&shown)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		w.t.Errorf("%s's answer cannot be encoded: %v", operation, err)
	}
	w.hush(operation+"'s answer", shown.String(), class)
	return out, err
}

var (
	codes = []provider.Code{
		provider.InvalidArgument, provider.FailedPrecondition, provider.NotFound, provider.AlreadyExists,
		provider.ResourceExhausted, provider.Unauthenticated, provider.PermissionDenied, provider.Throttled,
		provider.Unavailable, provider.DeadlineExceeded, provider.Aborted, provider.Canceled, provider.Unimplemented,
		provider.Internal, provider.Unknown,
	}
	states = []provider.InstanceState{
		provider.StatePending, provider.StateRunning, provider.StateStopped, provider.StateTerminating, provider.StateFailed,
	}
	providerIDFormat = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://\S*[^\s/]$`)
	nodeNameFormat   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// rejection checks an error.
func (w *watched) rejection(operation string, err error) {
	w.t.Helper()
	if code := provider.CodeOf(err); !slices.Contains(codes, code) {
		w.t.Errorf("%s's error has the code %q, which does not exist: %v", operation, code, err)
	}
	if e, ok := errors.AsType[*provider.Error](err); ok && (e.Message == "" || e.RetryAfter < 0) {
		w.t.Errorf("%s's error has an empty message or a negative RetryAfter: %#v", operation, e)
	}
}

// whole checks an instance. It returns an error where there is none to go on with.
func (w *watched) whole(operation string, in *provider.Instance) error {
	w.t.Helper()
	wrong := func(format string, args ...any) {
		w.t.Helper()
		w.t.Errorf(operation+": the instance's "+format, args...)
	}
	if in == nil {
		w.t.Errorf("%s returns neither an instance nor an error", operation)
		return provider.Errorf(provider.Internal, "%s returned nothing", operation)
	}
	if len(in.ProviderID) > 1024 || !providerIDFormat.MatchString(in.ProviderID) {
		wrong("ProviderID %q is not a URL such as \"azure:///…/vm-1\" of at most 1 KiB without white space that ends in a name", in.ProviderID)
	}
	if !slices.Contains(states, in.State) {
		wrong("State %q does not exist", in.State)
	}
	if in.StateCode != "" && (in.State != provider.StateFailed || !slices.Contains(codes, in.StateCode)) {
		wrong("StateCode %q is none of the codes, or its State %q is not Failed", in.StateCode, in.State)
	}
	if len(in.Scope) > 1024 {
		wrong("Scope is %d bytes long, more than 1 KiB", len(in.Scope))
	}
	if in.NodeName != "" && (len(in.NodeName) > 253 || !nodeNameFormat.MatchString(in.NodeName)) {
		wrong("NodeName %q is not a DNS subdomain", in.NodeName)
	}
	for field, value := range map[string]string{"Type": in.Type, "Region": in.Region, "Zone": in.Zone} {
		if len(value) > 256 {
			wrong("%s is %d bytes long, more than 256", field, len(value))
		}
	}
	for _, a := range in.Addresses {
		if a.Type == "" || a.Address == "" {
			wrong("addresses have one without type or value: %+v", a)
		}
	}
	return nil
}

// hush reports a secret in what was said.
func (w *watched) hush(where, text string, class provider.Class) {
	w.t.Helper()
	for what, secret := range w.t.secrets(class.Credentials) {
		for form, disguised := range forms(secret) {
			if strings.Contains(text, disguised) {
				w.t.Errorf("%s contains %s%s: %s", where, what, form, text)
				return
			}
		}
	}
}

// secrets are what no answer may contain, by what they are.
func (t *trial) secrets(credentials provider.Credentials) map[string]string {
	all := map[string]string{"the user data": t.userDataSecret}
	for _, key := range credentials.Keys() {
		if slices.Contains(t.PublicCredentials, key) {
			continue
		}
		value, _ := credentials.Get(key)
		longest := ""
		for line := range strings.Lines(string(value.Reveal())) {
			if line = strings.TrimSpace(line); len(line) > len(longest) {
				longest = line
			}
		}
		// Fewer characters would be found by chance.
		if len(longest) >= 8 {
			all["the value of the credentials' key "+key] = longest
		}
	}
	return all
}

// forms are a secret and its disguises: as it is, in hexadecimal digits, and in base64 wherever in the encoded text it
// stands.
func forms(secret string) map[string]string {
	all := map[string]string{"": secret, " in hexadecimal digits": hex.EncodeToString([]byte(secret))}
	for offset, name := range []string{" in base64", " in base64, after one byte", " in base64, after two bytes"} {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + secret))
		// The first and the last characters depend on what stands beside it.
		if offset > 0 {
			encoded = encoded[4:]
		}
		if encoded = encoded[:len(encoded)-2]; len(encoded) >= 8 {
			all[name] = encoded
		}
	}
	return all
}

// redact takes the secrets of the configuration out of a text that a test's log is to show.
func (t *trial) redact(text string) string {
	for _, credentials := range []provider.Credentials{t.Class.Credentials, t.RejectedCredentials} {
		for _, secret := range t.secrets(credentials) {
			for _, disguised := range forms(secret) {
				text = strings.ReplaceAll(text, disguised, "[secret]")
			}
		}
	}
	return text
}
