package cloud

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

// Rule: cloud-answers-bounded.
func TestDriverAnswersFitIntoAStatus(t *testing.T) {
	long := strings.Repeat("é", 5000)
	in := &provider.Instance{
		ProviderID: "sim:///1", State: provider.InstanceState(long), StateMessage: long, NodeName: long,
		Type: long, Region: long, Zone: "z\xff", Scope: "s",
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: long}, {Type: "x", Address: "\xff"}},
	}
	for range 1000 {
		in.Addresses = append(in.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"})
	}
	out, err := boundedInstance(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The name of a state has 63 bytes, and é has two.
	if len(out.State) != 62 || len(out.Type) != 256 || len(out.Region) != 256 || out.Zone != "z" || out.NodeName != "" ||
		len(out.StateMessage) != maxMessage {
		t.Errorf("got %+v", out)
	}
	if len(out.Addresses) != 256 || out.Addresses[0].Address != "10.0.0.1" {
		t.Errorf("%d addresses, the first %s", len(out.Addresses), out.Addresses[0].Address)
	}
	if len(in.Type) != len(long) {
		t.Error("the driver's own object was modified")
	}
	for _, bad := range []*provider.Instance{
		{ProviderID: "sim:///" + long}, {ProviderID: "no url"}, {ProviderID: "sim:///a b"},
		{ProviderID: "sim:///1", Scope: long}, {ProviderID: "sim:///1", CreateHandle: long},
	} {
		if _, err := boundedInstance(bad, nil); provider.CodeOf(err) != provider.Internal || len(err.Error()) > 1000 {
			t.Errorf("%.20s: %v", bad.ProviderID, err)
		}
	}
	if out, err := boundedInstance(&provider.Instance{NodeName: "node-1.example"}, nil); err != nil ||
		out.NodeName != "node-1.example" {
		t.Errorf("%+v %v", out, err)
	}
	if got := boundedError(provider.Errorf(provider.Throttled, "%s", long)); provider.CodeOf(got) != provider.Throttled ||
		len(got.Error()) > maxMessage+100 {
		t.Errorf("the error has %d bytes", len(got.Error()))
	}
	capacity, _ := boundedCapacity(provider.Capacity{Architecture: long, Zone: long}, nil)
	if len(capacity.Architecture) != 62 || len(capacity.Zone) != 256 {
		t.Errorf("capacity %+v", capacity)
	}
}
