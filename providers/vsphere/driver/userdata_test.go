package driver_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine/sample"
)

func TestUserDataIsInVariablesOfItsReader(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		userData        string
		present, absent string
	}{
		"cloud-init": {"#cloud-config\n", "guestinfo.userdata", "guestinfo.ignition.config.data"},
		"ignition":   {`{"ignition":{"version":"3.4.0"}}`, "guestinfo.ignition.config.data", "guestinfo.userdata"},
		// cloud-init reads other JSON.
		"json": {`{"ignition":"no"}`, "guestinfo.userdata", "guestinfo.ignition.config.data"},
	} {
		req := createRequest(machineNamed(name), sample.Spec())
		req.UserData = provider.NewSecret([]byte(test.userData))
		extra := c.Extra(uuidOf(launch(t, d, req).ProviderID))
		if extra[test.present] == "" || extra[test.present+".encoding"] != "gzip+base64" || extra[test.absent] != "" {
			t.Errorf("%s: got the variables %q", name, extra)
		}
		if extra["guestinfo.metadata"] == "" && test.present == "guestinfo.userdata" {
			t.Errorf("%s: the variables contain no host name", name)
		}
	}
}

// VMware Tools transfer at most 64 KiB. Larger user data must be refused before the clone, because the guest would
// never join.
func TestLargeUserDataIsRefusedBeforeTheClone(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	req := createRequest(machineNamed("a"), sample.Spec())
	random := make([]byte, 49<<10) // Random data cannot be compressed, and base64 needs a third more.
	_, _ = rand.Read(random)
	req.UserData = provider.NewSecret(random)
	_, err = d.Create(t.Context(), req)
	if provider.CodeOf(err) != provider.InvalidArgument || !strings.Contains(err.Error(), "user data") || c.Created() > 0 {
		t.Errorf("got %v after %d clones, want InvalidArgument and no clone", err, c.Created())
	}
	req.UserData = provider.NewSecret([]byte(strings.Repeat("a", 1<<20))) // This is small when it is compressed.
	launch(t, d, req)
}
