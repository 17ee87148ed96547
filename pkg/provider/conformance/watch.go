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

// checkedDriver wraps the tested driver. Every call has a deadline, as in Machinist. Every answer is checked:
// instances must be valid, fields must not exceed their limits, and no answer may contain secrets.
type checkedDriver struct {
	driver  provider.Driver
	t       *trial
	timeout time.Duration
}

func (w *checkedDriver) Name() string { return w.driver.Name() }

func (w *checkedDriver) Validate(ctx context.Context, req provider.ValidateRequest) error {
	_, err := watch(ctx, w, "Validate", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.Validate(ctx, req)
	})
	return err
}

func (w *checkedDriver) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return watch(ctx, w, "Capacity", req.Class, nil, func(ctx context.Context) (provider.Capacity, error) {
		return w.driver.Capacity(ctx, req)
	})
}

func (w *checkedDriver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	return watch(ctx, w, "Create", req.Class, w.checkInstance, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.Create(ctx, req)
	})
}

func (w *checkedDriver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	req.CreateHandle = w.t.handles.next("Get", req.ProviderID)
	return watch(ctx, w, "Get", req.Class, w.checkInstance, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.Get(ctx, req)
	})
}

func (w *checkedDriver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	req.CreateHandle = w.t.handles.next("Update", req.ProviderID)
	return watch(ctx, w, "Update", req.Class, nil, func(ctx context.Context) (provider.UpdateResult, error) {
		return w.driver.Update(ctx, req)
	})
}

func (w *checkedDriver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	req.CreateHandle = w.t.handles.next("Delete", req.ProviderID)
	return watch(ctx, w, "Delete", req.Class, nil, func(ctx context.Context) (provider.DeleteResult, error) {
		return w.driver.Delete(ctx, req)
	})
}

func (w *checkedDriver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	return watch(ctx, w, "List", req.Class, func(operation string, page provider.ListPage) error {
		for i := range page.Instances {
			_ = w.checkInstance(operation, &page.Instances[i]) // The instance is not nil, so there is no error.
		}
		for _, part := range page.Leftovers {
			if part.ID == "" || len(part.ID) > 1024 || part.ClusterID != req.ClusterID || part.MachineUID == "" {
				w.t.Errorf("%s: a leftover has no ID, an ID longer than 1 KiB, a ClusterID that was not requested, or no MachineUID: %+v", operation, part)
			}
		}
		return nil
	}, func(ctx context.Context) (provider.ListPage, error) { return w.driver.List(ctx, req) })
}

// Adopt must only be called if the driver implements provider.Adopter.
func (w *checkedDriver) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	return watch(ctx, w, "Adopt", req.Class, w.checkInstance, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.(provider.Adopter).Adopt(ctx, req)
	})
}

// SetPower must only be called if the driver implements provider.Power.
func (w *checkedDriver) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	return watch(ctx, w, "SetPower", req.Class, w.checkInstance, func(ctx context.Context) (*provider.Instance, error) {
		return w.driver.(provider.Power).SetPower(ctx, req)
	})
}

// Joined must only be called if the driver implements provider.Joiner.
func (w *checkedDriver) Joined(ctx context.Context, req provider.JoinedRequest) error {
	_, err := watch(ctx, w, "Joined", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.(provider.Joiner).Joined(ctx, req)
	})
	return err
}

// Interruptions must only be called if the driver implements provider.Interrupter.
func (w *checkedDriver) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
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

// Locate, Import, Release and Disown must only be called if the driver implements provider.Importer.
func (w *checkedDriver) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
	return watch(ctx, w, "Locate", legacyClass(req.Legacy), func(operation string, all []provider.LocatedInstance) error {
		for i := range all {
			_ = w.checkInstance(operation, &all[i].Instance) // The instance is not nil, so there is no error.
			w.checkNoSecrets(operation+"'s facts", string(all[i].Facts), legacyClass(req.Legacy))
		}
		return nil
	}, func(ctx context.Context) ([]provider.LocatedInstance, error) {
		return w.driver.(provider.Importer).Locate(ctx, req)
	})
}

// Import checks everything except the credentials, which it returns unchecked.
func (w *checkedDriver) Import(ctx context.Context, req provider.ImportRequest) (out provider.ImportedSpec, err error) {
	checked, err := watch(ctx, w, "Import", legacyClass(req.Legacy), nil, func(ctx context.Context) (provider.ImportedSpec,
		error) {
		var err error
		out, err = w.driver.(provider.Importer).Import(ctx, req)
		public := out
		public.Credentials = nil
		w.checkNoSecrets("Import's providerSpec", string(out.Spec), legacyClass(req.Legacy))
		return public, err
	})
	checked.Credentials = out.Credentials
	return checked, err
}

func (w *checkedDriver) Release(ctx context.Context, req provider.ReleaseRequest) error {
	_, err := watch(ctx, w, "Release", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.(provider.Importer).Release(ctx, req)
	})
	return err
}

func (w *checkedDriver) Disown(ctx context.Context, req provider.DisownRequest) error {
	_, err := watch(ctx, w, "Disown", req.Class, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.driver.(provider.Importer).Disown(ctx, req)
	})
	return err
}

// legacyClass returns a class with the credentials of an old description, so that answers are checked for these
// secrets. The Spec of the description is not checked, because most of it is not secret.
func legacyClass(old provider.Legacy) provider.Class {
	return provider.Class{Credentials: old.Credentials}
}

// watch calls the driver and checks the result. Many goroutines may call watch, so it reports failures with Errorf and
// never calls FailNow.
func watch[T any](ctx context.Context, w *checkedDriver, operation string, class provider.Class,
	check func(string, T) error,
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
		w.checkError(operation, err)
		w.checkNoSecrets(operation+"'s error", err.Error(), class)
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
		w.t.Errorf("%s's answer cannot be encoded as JSON: %v", operation, err)
	}
	w.checkNoSecrets(operation+"'s answer", shown.String(), class)
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

func (w *checkedDriver) checkError(operation string, err error) {
	w.t.Helper()
	if code := provider.CodeOf(err); !slices.Contains(codes, code) {
		w.t.Errorf("%s's error has the code %q, which does not exist: %v", operation, code, err)
	}
	if e, ok := errors.AsType[*provider.Error](err); ok && (e.Message == "" || e.RetryAfter < 0) {
		w.t.Errorf("%s's error has an empty message or a negative RetryAfter: %#v", operation, e)
	}
}

// checkInstance checks an instance. It returns an error if the instance is nil.
func (w *checkedDriver) checkInstance(operation string, in *provider.Instance) error {
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
		wrong("StateCode %q is not one of the codes, or its State %q is not Failed", in.StateCode, in.State)
	}
	if len(in.CreateHandle) > 1024 || in.CreateHandle != "" && in.State != provider.StatePending {
		wrong("CreateHandle is %d bytes long, more than 1 KiB, or its State %q is not Pending", len(in.CreateHandle),
			in.State)
	}
	w.t.handles.record(in)
	if len(in.GuestAddresses) > 0 {
		w.t.sawGuestAddress.Store(true)
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
	for _, a := range in.AllAddresses() {
		if a.Type == "" || a.Address == "" {
			wrong("addresses include one without type or value: %+v", a)
		}
	}
	return nil
}

func (w *checkedDriver) checkNoSecrets(where, text string, class provider.Class) {
	w.t.Helper()
	for what, secret := range w.t.secrets(class.Credentials) {
		for form, encoded := range encodings(secret) {
			if strings.Contains(text, encoded) {
				w.t.Errorf("%s contains %s%s: %s", where, what, form, text)
				return
			}
		}
	}
}

// secrets collects the texts that no answer of the driver may contain. The key of each text is a description for error
// messages.
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
		// Skip short values, because an answer could contain the same few characters by chance.
		if len(longest) >= 8 {
			all["the value of the credentials' key "+key] = longest
		}
	}
	return all
}

// encodings returns the encodings in which a secret may appear: plain, hexadecimal, and base64 at any position of the
// encoded text.
func encodings(secret string) map[string]string {
	all := map[string]string{"": secret, " in hexadecimal digits": hex.EncodeToString([]byte(secret))}
	for offset, name := range []string{" in base64", " in base64, after one byte", " in base64, after two bytes"} {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + secret))
		// The first and the last characters depend on the bytes around the secret.
		if offset > 0 {
			encoded = encoded[4:]
		}
		if encoded = encoded[:len(encoded)-2]; len(encoded) >= 8 {
			all[name] = encoded
		}
	}
	return all
}

func (t *trial) redact(text string) string {
	for _, credentials := range []provider.Credentials{t.Class.Credentials, t.RejectedCredentials} {
		for _, secret := range t.secrets(credentials) {
			for _, encoded := range encodings(secret) {
				text = strings.ReplaceAll(text, encoded, "[secret]")
			}
		}
	}
	return text
}
