package driver_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/permissions"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/driver"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/azure.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDriverAcceptsExamples(t *testing.T) {
	objects, err := examples.Azure.Objects()
	if err != nil {
		t.Fatal(err)
	}
	c := newCloud(t, nil)
	classes, secrets := 0, map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Secret:
			secrets[o.Name] = true
			if o.Name == examples.Azure.Credentials() {
				data := map[string][]byte{}
				for key, text := range o.StringData {
					data[key] = []byte(text)
				}
				c.must(c.driver().Validate(t.Context(),
					provider.ValidateRequest{Class: provider.Class{Spec: sample.Spec(), Credentials: provider.NewCredentials(data)}}))
			}
		case *v1beta1.MachineClass:
			classes++
			if err := c.driver().Validate(t.Context(),
				provider.ValidateRequest{Class: provider.Class{Spec: o.Spec.ProviderSpec.Raw}}); err != nil {
				t.Errorf("class %s: %v", o.Name, err)
			}
			if o.Spec.Provider != driver.Name || !secrets[o.Spec.CredentialsRef.Name] || !secrets[o.Spec.UserDataRef.Name] {
				t.Errorf("class %s refers to another provider or to a missing Secret: %+v", o.Name, o.Spec)
			}
		}
	}
	if classes != 2 {
		t.Errorf("got %d classes, want 2", classes)
	}
}

func permissionsOf(t *testing.T) *permissions.Requirements {
	t.Helper()
	text, err := os.ReadFile("../permissions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	needs, err := permissions.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return needs
}

func TestDocsShowRole(t *testing.T) {
	needs := permissionsOf(t)
	_, text, _ := strings.Cut(page(t), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	document, err := needs.AzureDocument(needs.Actions,
		permissions.AzureScope{Subscription: "00000000-0000-4000-8000-000000000002"})
	if err != nil {
		t.Fatal(err)
	}
	if text != string(document) {
		t.Errorf("the documentation has the role\n%s\nwant\n%s", text, document)
	}
	for _, optional := range needs.Optional {
		row := fmt.Sprintf("| `%s` | `%s` |", strings.Join(optional.Actions, "`, `"), optional.Field)
		if !strings.Contains(page(t), row+"\n") {
			t.Errorf("the documentation lacks the row %s", row)
		}
	}
}

// runLifecycle creates, updates and deletes a machine with a role that allows only these actions.
func runLifecycle(t *testing.T, actions []string) error {
	t.Helper()
	c := newCloud(t, func(o *fakeazure.Options) {
		o.Actions, o.ChangeDuration, o.BootDuration, o.StopDuration = actions, time.Millisecond, time.Millisecond, time.Millisecond
	})
	d, req := c.driver(), request("a", class())
	if _, err := d.Capacity(t.Context(), provider.CapacityRequest{Class: req.Class}); err != nil {
		return err
	}
	in, err := d.Create(t.Context(), req)
	if err != nil {
		return err
	}
	get, del := lookup(req), deletion(req)
	get.ProviderID, get.Scope, del.ProviderID, del.Scope = in.ProviderID, in.Scope, in.ProviderID, in.Scope
	if err := waitUntil(c, func() (bool, error) {
		in, err := d.Get(t.Context(), get)
		return err == nil && in.State == provider.StateRunning, err
	}); err != nil {
		return err
	}
	update := provider.UpdateRequest{
		Machine: req.Machine, ClusterID: cluster, ProviderID: in.ProviderID, Scope: in.Scope, Version: req.Version,
		NodeDrained: true,
		Class:       class("vmSize", "Standard_D4s_v5", "resize", "Deallocate", "tags.team", "green"),
	}
	if err := waitUntil(c, func() (bool, error) {
		result, err := d.Update(t.Context(), update)
		if provider.CodeOf(err) == provider.Aborted {
			return false, nil
		}
		if err == nil && result.Outcome != provider.UpdateDone && result.Outcome != provider.UpdateInProgress {
			err = fmt.Errorf("the outcome is %s: %s", result.Outcome, result.Reason)
		}
		return result.Outcome == provider.UpdateDone, err
	}); err != nil {
		return err
	}
	for _, action := range []provider.PowerAction{provider.PowerForceOff, provider.PowerOn} {
		if err := c.setPower(d, powerRequest(req, in, action)); err != nil {
			return err
		}
	}
	c.KeepParts()
	return waitUntil(c, func() (bool, error) {
		result, err := d.Delete(t.Context(), del)
		if provider.CodeOf(err) == provider.Aborted {
			return false, nil
		}
		return result.Gone, err
	})
}

func waitUntil(c *cloud, ask func() (bool, error)) (err error) {
	c.Helper()
	c.eventually("the operation ends", func() (bool, string) {
		var done bool
		done, err = ask()
		return done || err != nil, "it has not ended"
	})
	return err
}

func TestProviderNeedsExactlyItsPermissions(t *testing.T) {
	actions := permissionsOf(t).Actions
	if len(actions) < 10 {
		t.Fatalf("got only the actions %v", actions)
	}
	if err := runLifecycle(t, actions); err != nil {
		t.Errorf("with all actions: %v", err)
	}
	for i, action := range actions {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			err := runLifecycle(t, slices.Delete(slices.Clone(actions), i, i+1))
			if provider.CodeOf(err) != provider.PermissionDenied {
				t.Errorf("without the action: got %v, want PermissionDenied; is the action needed?", err)
			}
		})
	}
}
