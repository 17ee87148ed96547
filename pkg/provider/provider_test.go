package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func TestCodeOf(t *testing.T) {
	throttled := &provider.Error{Code: provider.Throttled, Message: "slow down", RetryAfter: 7 * time.Second}
	for _, tc := range []struct {
		name string
		err  error
		want provider.Code
	}{
		{"nil is OK", nil, provider.OK},
		{"an Error keeps its code", throttled, provider.Throttled},
		{"a wrapped Error keeps its code", fmt.Errorf("create: %w", throttled), provider.Throttled},
		{"a bare deadline", fmt.Errorf("call: %w", context.DeadlineExceeded), provider.DeadlineExceeded},
		{"a bare cancellation", context.Canceled, provider.Canceled},
		{"anything else", errors.New("boom"), provider.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := provider.CodeOf(tc.err); got != tc.want {
				t.Errorf("CodeOf(%v) = %s, want %s", tc.err, got, tc.want)
			}
		})
	}
	if got := provider.RetryAfter(fmt.Errorf("x: %w", throttled)); got != 7*time.Second {
		t.Errorf("RetryAfter = %s, want 7s", got)
	}
}

func TestNoCodeIsBothTerminalAndAmbiguous(t *testing.T) {
	for _, c := range []provider.Code{provider.InvalidArgument, provider.FailedPrecondition, provider.Unimplemented} {
		if !c.Terminal() || c.Ambiguous() {
			t.Errorf("%s: Terminal=%v Ambiguous=%v, want true, false", c, c.Terminal(), c.Ambiguous())
		}
	}
	for _, c := range []provider.Code{provider.Throttled, provider.NotFound, provider.ResourceExhausted,
		provider.Unauthenticated} {
		if c.Terminal() || c.Ambiguous() {
			t.Errorf("%s: Terminal=%v Ambiguous=%v, want false, false", c, c.Terminal(), c.Ambiguous())
		}
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	const hidden = "hunter2"
	req := provider.CreateRequest{
		UserData: provider.NewSecret([]byte(hidden)),
		Class:    provider.Class{Credentials: provider.NewCredentials(map[string][]byte{"token": []byte(hidden)})},
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", req)
		fmt.Fprintf(&out, verb+"\n", &req)
	}
	encoded, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "req", req, "secret", req.UserData, "cred", req.Class.Credentials)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "req", req, "secret", req.UserData, "cred", req.Class.Credentials)
	for _, form := range []string{hidden, fmt.Sprintf("%x", hidden), "aHVudGVyMg", fmt.Sprint([]byte(hidden))} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret was printed as %q in:\n%s", form, out.String())
		}
	}
	if got := string(req.UserData.Reveal()); got != hidden {
		t.Errorf("Reveal = %q", got)
	}
}

func TestOwnedByNeedsBothTags(t *testing.T) {
	m := provider.Machine{Namespace: "ns", Name: "a", UID: "uid-a"}
	for _, tc := range []struct {
		name, cluster string
		in            provider.Instance
		want          provider.Code
	}{
		{"both", "c", provider.Instance{ClusterID: "c", MachineUID: "uid-a"}, provider.OK},
		{"another cluster", "c", provider.Instance{ClusterID: "d", MachineUID: "uid-a"}, provider.FailedPrecondition},
		{"another machine", "c", provider.Instance{ClusterID: "c", MachineUID: "uid-b"}, provider.FailedPrecondition},
		{"no cluster", "c", provider.Instance{MachineUID: "uid-a"}, provider.FailedPrecondition},
		{"no machine", "c", provider.Instance{ClusterID: "c"}, provider.FailedPrecondition},
		{"no cluster in the request", "", provider.Instance{MachineUID: "uid-a"}, provider.InvalidArgument},
	} {
		if err := tc.in.OwnedBy(tc.cluster, m); provider.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}
