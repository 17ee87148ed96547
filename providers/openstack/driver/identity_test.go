package driver

import (
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// The driver finds a port only by its description.
func TestPortDescriptionIdentifiesOwner(t *testing.T) {
	for _, name := range []string{"worker", strings.Repeat("long", 63)} {
		own := owner{cluster: strings.Repeat("c", 63), machine: provider.Machine{Namespace: "default", Name: name,
			UID: "11111111-2222-4333-8444-555555555555"}}
		text := own.description()
		cluster, uid, key, ok := parseDescription(text)
		if len(text) > 255 || !ok || cluster != own.cluster || uid != own.machine.UID ||
			!strings.HasPrefix("default/"+name, key) {
			t.Errorf("%q: got %q %q %q %v", text, cluster, uid, key, ok)
		}
	}
	for _, text := range []string{"", "machinist", "machinist cluster= uid=u machine=m", "machinist uid=u cluster=c machine=m",
		"my machinist cluster=c uid=u machine=m", "machinist cluster=c uid=u"} {
		if cluster, uid, _, ok := parseDescription(text); ok {
			t.Errorf("%q: got the owner %q %q, want none", text, cluster, uid)
		}
	}
}

func TestPortNameIdentifiesServer(t *testing.T) {
	for _, server := range []string{"worker-abc", "worker-abc-2", "port-0-abc"} {
		if got := serverOfPort(portName(server, 12)); got != server {
			t.Errorf("got the server %s for a port of %s", got, server)
		}
	}
}

func TestSpecHashCoversFieldsThatRequireReplacement(t *testing.T) {
	spec := func() machine.Spec {
		return machine.Spec{Flavor: "f", Ports: []machine.Port{{Network: "n", SecurityGroups: []string{"a"}}}}
	}
	before := specHash(spec())
	for name, change := range map[string]func(*machine.Spec){
		"metadata": func(s *machine.Spec) { s.Metadata = map[string]string{"a": "b"} },
		"tags":     func(s *machine.Spec) { s.Tags = []string{"t"} },
		"groups":   func(s *machine.Spec) { s.SecurityGroups, s.Ports[0].SecurityGroups = []string{"b"}, nil },
	} {
		s := spec()
		if change(&s); specHash(s) != before {
			t.Errorf("a change of %s changes the hash", name)
		}
	}
	for name, change := range map[string]func(*machine.Spec){
		"flavor":  func(s *machine.Spec) { s.Flavor = "g" },
		"network": func(s *machine.Spec) { s.Ports[0].Network = "m" },
		"volumes": func(s *machine.Spec) { s.Volumes = []machine.Volume{{Name: "a", SizeGiB: 1}} },
	} {
		s := spec()
		if change(&s); specHash(s) == before {
			t.Errorf("a change of %s does not change the hash", name)
		}
	}
	s := spec()
	specHash(s)
	if s.Ports[0].SecurityGroups == nil {
		t.Error("specHash changed the specification")
	}
}
