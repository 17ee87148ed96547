package driver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

func TestStateCombinesStatusTaskAndPower(t *testing.T) {
	launched := time.Now()
	noHost := servers.Fault{Code: 500, Message: "No valid host was found. There are not enough hosts available."}
	for name, test := range map[string]struct {
		server  servers.Server
		want    provider.InstanceState
		message string
	}{
		"being created":         {servers.Server{Status: "BUILD", TaskState: "spawning"}, provider.StatePending, "spawning"},
		"running":               {servers.Server{Status: "ACTIVE"}, provider.StateRunning, ""},
		"being deleted":         {servers.Server{Status: "ACTIVE", TaskState: "deleting"}, provider.StateTerminating, ""},
		"soft-deleted":          {servers.Server{Status: "SOFT_DELETED"}, provider.StateTerminating, ""},
		"stopped":               {servers.Server{Status: "SHUTOFF"}, provider.StateStopped, "SHUTOFF"},
		"being started":         {servers.Server{Status: "SHUTOFF", TaskState: "powering-on"}, provider.StatePending, "powering-on"},
		"shelved":               {servers.Server{Status: "SHELVED_OFFLOADED"}, provider.StateStopped, "SHELVED_OFFLOADED"},
		"rebooting":             {servers.Server{Status: "HARD_REBOOT"}, provider.StateRunning, "HARD_REBOOT"},
		"host does not respond": {servers.Server{Status: "UNKNOWN"}, provider.StateRunning, "UNKNOWN"},
		"no host":               {servers.Server{Status: "ERROR", Fault: noHost}, provider.StateFailed, "No valid host was found"},
		"failed, running": {servers.Server{Status: "ERROR", LaunchedAt: launched, PowerState: servers.RUNNING},
			provider.StateRunning, "ERROR without a fault"},
		"failed, not running": {servers.Server{Status: "ERROR", LaunchedAt: launched, PowerState: servers.SHUTDOWN,
			Fault: servers.Fault{Code: 500, Message: "secret words"}}, provider.StateStopped, "a fault with code 500"},
	} {
		got, message := stateOf(&test.server)
		if got != test.want || !strings.Contains(message, test.message) || strings.Contains(message, "secret") {
			t.Errorf("%s: got %s %q, want %s %q", name, got, message, test.want, test.message)
		}
	}
}

func TestServerIsConvertedToInstance(t *testing.T) {
	const id = "1a111111-2222-4333-8444-555555555555"
	s := &servers.Server{
		ID: id, Name: "Worker-1", Status: "ACTIVE", AvailabilityZone: "az-1",
		Flavor:   map[string]any{"original_name": "m1.small"},
		Metadata: map[string]string{provider.TagCluster: "c", provider.TagMachineUID: "u", provider.TagMachine: "ns/m"},
		Addresses: map[string]any{"b": []any{map[string]any{"addr": "203.0.113.7", "OS-EXT-IPS:type": "floating"}},
			"a": []any{map[string]any{"addr": "10.0.0.5", "OS-EXT-IPS:type": "fixed"}, map[string]any{"addr": 7}, "what"}},
	}
	for regional, want := range map[bool]string{false: "openstack:///" + id, true: "openstack://one/" + id} {
		in, err := (&clients{region: "one", regional: regional}).convert(s)
		if err != nil {
			t.Fatal(err)
		}
		if in.ProviderID != want || in.NodeName != "worker-1" || in.Type != "m1.small" || in.Zone != "az-1" ||
			in.ClusterID != "c" || in.MachineUID != "u" || in.MachineKey != "ns/m" {
			t.Errorf("got %+v", in)
		}
		addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "worker-1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.5"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.7"}}
		if len(in.Addresses) != 3 || in.Addresses[0] != addresses[0] || in.Addresses[1] != addresses[1] ||
			in.Addresses[2] != addresses[2] {
			t.Errorf("got the addresses %v, want %v", in.Addresses, addresses)
		}
		region, server, err := regionFor(in.ProviderID, in.Scope, nil)
		if err != nil || region != "one" || server != id {
			t.Errorf("got region %q, server %q, %v from the provider ID and the scope", region, server, err)
		}
	}
	failed := *s
	failed.Status, failed.Fault = "ERROR", servers.Fault{Code: 500, Message: "No valid host was found. "}
	if in, err := (&clients{}).convert(&failed); err != nil || in.State != provider.StateFailed ||
		in.StateCode != provider.ResourceExhausted {
		t.Errorf("no host has room: got %+v, %v", in, err)
	}
	failed.Fault.Message = "Build of instance failed"
	if in, err := (&clients{}).convert(&failed); err != nil || in.StateCode != "" {
		t.Errorf("other failure: got %+v, %v, want no state code", in, err)
	}
	if _, err := (&clients{}).convert(&servers.Server{ID: "what"}); provider.CodeOf(err) != provider.Internal {
		t.Errorf("invalid ID: got %v, want Internal", err)
	}
}

func TestProviderIDsAreParsed(t *testing.T) {
	const id = "1a111111-2222-4333-8444-555555555555"
	for text, region := range map[string]string{"openstack:///" + id: "", "openstack://r1/" + id: "r1"} {
		if got, server, err := parseProviderID(text); err != nil || got != region || server != id {
			t.Errorf("%s: got region %q, server %q, %v", text, got, server, err)
		}
	}
	for _, text := range []string{"", id, "openstack://" + id, "openstack:///", "openstack:///../" + id, "aws:///a/" + id,
		"openstack:///" + strings.ToUpper(id), "openstack:///" + id + "/x"} {
		_, _, err := parseProviderID(text)
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Code != provider.InvalidArgument {
			t.Errorf("%q: got %v, want InvalidArgument", text, err)
		}
	}
}
