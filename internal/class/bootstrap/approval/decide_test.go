package approval

import (
	"bytes"
	"encoding/asn1"
	"encoding/pem"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/platform/nodemark"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func launched(changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	m := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m", UID: "uid-m",
			Labels: map[string]string{v1beta1.LabelProvider: "acme"}, CreationTimestamp: metav1.NewTime(now)},
		Spec:   v1beta1.MachineSpec{ProviderID: "acme:///1"},
		Status: v1beta1.MachineStatus{Instance: &v1beta1.InstanceStatus{NodeName: "n1"}},
	}
	for _, c := range changes {
		c(m)
	}
	return m
}

func joined(m *v1beta1.Machine) { m.Status.NodeRef = &v1beta1.NodeRef{Name: "n1", UID: "uid-n1"} }

func deleting(m *v1beta1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: now} }

func ofOtherProvider(m *v1beta1.Machine) { m.Labels[v1beta1.LabelProvider] = "other" }

func joining(changes ...func(*Facts)) Facts {
	f := Facts{
		Now: now, Provider: "acme", Machine: launched(),
		Token:            &bootstrap.Record{Owner: "uid-m-1", ExpiryTime: now.Add(time.Minute)},
		ReportedInstance: &ReportedInstance{NodeName: "n1"},
	}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func node(uid types.UID, providerID string) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: uid}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if m := launched(); providerID == m.Spec.ProviderID {
		out.Annotations = markOf(m)
	}
	return out
}

// markOf returns the annotations of a Node that prove that the Node belongs to the Machine.
func markOf(m *v1beta1.Machine) map[string]string {
	return map[string]string{v1beta1.NodeAnnotationInstance: nodemark.New(m, "c", "acme").String(),
		v1beta1.NodeAnnotationMachine: m.Name, v1beta1.NodeAnnotationClusterNamespace: m.Namespace}
}

func nodeID(m *v1beta1.Machine) { m.Status.Instance.NodeProviderID = "k3s://n1" }

// markedNode returns the Node n1 with a provider ID from the class and the mark of the instance.
func markedNode(instance string) *corev1.Node {
	n := node("uid-n1", "k3s://n1")
	n.Annotations = markOf(launched())
	n.Annotations[v1beta1.NodeAnnotationInstance] = nodemark.Mark{ClusterID: "c", Provider: "acme", ProviderID: instance}.String()
	return n
}

func running(changes ...func(*Facts)) Facts {
	f := Facts{Now: now, Provider: "acme", Machine: launched(joined), Node: node("uid-n1", "acme:///1")}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func withMachine(changes ...func(*v1beta1.Machine)) func(*Facts) {
	return func(f *Facts) { f.Machine = launched(changes...) }
}

func withAddresses(f *Facts) {
	f.ReportedInstance = &ReportedInstance{NodeName: "n1", Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
		{Type: corev1.NodeExternalIP, Address: "2001:db8::5"},
		{Type: corev1.NodeInternalDNS, Address: "n1.internal.example"},
	}}
}

func withGuestAddresses(ranges ...string) func(*Facts) {
	return func(f *Facts) {
		withAddresses(f)
		f.ReportedInstance.GuestAddresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
			{Type: corev1.NodeInternalIP, Address: "192.0.2.10"},
			{Type: corev1.NodeExternalIP, Address: "2001:db8:1::10"},
			{Type: corev1.NodeInternalDNS, Address: "registry.example"},
		}
		for _, r := range ranges {
			f.GuestRanges = append(f.GuestRanges, netip.MustParsePrefix(r))
		}
	}
}

// An attacker who controls a guest can report any address. With a serving certificate for the address of an API server,
// the attacker could read requests of clients. The request must not be approved outside the configured ranges.
//
// Rule: guest-address-only-in-ranges.
func TestAttackGuestChoosesAddressOfServingCertificate(t *testing.T) {
	request := func(names []string, ips ...string) *certificatesv1.CertificateSigningRequest {
		return csrtest.ForServing("n1", names, ips).ByNode(t, "n1")
	}
	own := []string{"n1"}
	for _, tc := range []struct {
		name    string
		request *certificatesv1.CertificateSigningRequest
		ranges  []string
		want    Reason
	}{
		{"its own name", request(own), nil, ReasonNodeServes},
		{"an address that the cloud reports too", request(own, "10.0.0.5"), nil, ReasonNodeServes},
		{"an address of the guest", request(own, "192.0.2.10"), nil, ReasonGuestAddress},
		{"an IPv6 address of the guest", request(own, "2001:db8:1::10"), nil, ReasonGuestAddress},
		{"both kinds", request(own, "10.0.0.5", "192.0.2.10"), nil, ReasonGuestAddress},
		{"a name of the guest", request([]string{"n1", "registry.example"}, "10.0.0.5"), nil, ReasonGuestAddress},
		{"an address that nothing reports", request(own, "192.0.2.11"), nil, ReasonUnknownAddress},
		{"an address of the guest, and one that nothing reports", request(own, "192.0.2.10", "192.0.2.11"), nil,
			ReasonUnknownAddress},

		{"in a range", request(own, "192.0.2.10"), []string{"192.0.2.0/28"}, ReasonNodeServes},
		{"in ranges of both families", request(own, "192.0.2.10", "2001:db8:1::10"),
			[]string{"192.0.2.0/28", "2001:db8:1::/64"}, ReasonNodeServes},
		{"outside of the range", request(own, "192.0.2.10"), []string{"192.0.2.0/29"}, ReasonGuestAddress},
		{"one of two in a range", request(own, "192.0.2.10", "2001:db8:1::10"), []string{"192.0.2.0/28"}, ReasonGuestAddress},
		{"in a range, and nothing reports the address", request(own, "192.0.2.11"), []string{"192.0.2.0/28"},
			ReasonUnknownAddress},
		{"a name of the guest, with ranges", request([]string{"registry.example"}), []string{"192.0.2.0/28"},
			ReasonGuestAddress},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.request, running(withGuestAddresses(tc.ranges...)), tc.want) })
	}
}

// An attacker who takes the place of the cloud reports the name or an address of the API server, of the local host or
// of a Service. No range of --approve-guest-addresses permits a certificate for these either.
//
// Rule: no-serving-certificate-for-reserved-addresses.
func TestAttackCloudReportsAddressOfAPIServer(t *testing.T) {
	reserved := ReservedNames{Hosts: []string{"192.0.2.1", "2001:db8::1", "API.example"},
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	for _, name := range []string{"localhost", "LOCALHOST.", "a.localhost", "kubernetes", "kubernetes.default",
		"Kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "api.example", "API.example.", "*",
		"*.default.svc", "127.0.0.1", "192.0.2.1", "10.96.0.10"} {
		t.Run(name, func(t *testing.T) {
			check(t, csrtest.ForServing("n1", []string{"n1", name}, []string{"10.0.0.5"}).ByNode(t, "n1"),
				running(withAddresses, func(f *Facts) {
					f.ReservedNames = reserved
					f.ReportedInstance.Addresses = append(f.ReportedInstance.Addresses,
						corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: name})
				}), ReasonReservedAddress)
		})
	}
	for ip, want := range map[string]Reason{
		"10.0.0.5": ReasonNodeServes, "10.97.0.1": ReasonNodeServes, "192.0.2.2": ReasonNodeServes,
		"10.96.0.1": ReasonReservedAddress, "192.0.2.1": ReasonReservedAddress, "2001:db8::1": ReasonReservedAddress,
		"127.0.0.1": ReasonReservedAddress, "::1": ReasonReservedAddress, "::ffff:127.0.0.1": ReasonReservedAddress,
		"0.0.0.0": ReasonReservedAddress, "::": ReasonReservedAddress, "169.254.169.254": ReasonReservedAddress,
		"fe80::1": ReasonReservedAddress, "224.0.0.1": ReasonReservedAddress, "ff02::1": ReasonReservedAddress,
		"64:ff9b::c000:201": ReasonReservedAddress,
	} {
		t.Run(ip, func(t *testing.T) {
			check(t, csrtest.ForServing("n1", []string{"n1"}, []string{ip}).ByNode(t, "n1"),
				running(withAddresses, func(f *Facts) {
					f.ReservedNames = reserved
					f.GuestRanges = []netip.Prefix{netip.MustParsePrefix(ip + "/8")}
					reported := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
					f.ReportedInstance.Addresses = append(f.ReportedInstance.Addresses, reported...)
					f.ReportedInstance.GuestAddresses = reported
				}), want)
		})
	}
}

// Rules: client-certificate-for-token-bearer, certificate-name-from-provider.
func TestDecideJoin(t *testing.T) {
	const encipherment = certificatesv1.UsageKeyEncipherment
	for _, tc := range []struct {
		name    string
		request *certificatesv1.CertificateSigningRequest
		facts   Facts
		want    Reason
	}{
		{"valid", csrtest.ForClient("n1").ByToken(t), joining(), ReasonMachineJoins},
		{"with the usage of an RSA key",
			csrtest.ForClient("n1", csrtest.Usages(encipherment, certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth)).ByToken(t), joining(), ReasonMachineJoins},
		{"again, after the Node registered and before it was paired", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) {
			f.Node = node("x", "acme:///1")
		}), ReasonMachineJoins},

		{"no such token", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) { f.Token = nil }), ReasonTokenUnknown},
		{"a token without a machine", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) { f.Token.Owner, f.Machine = "", nil }),
			ReasonTokenUnknown},
		{"no such machine", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) { f.Machine = nil }), ReasonMachineGone},
		{"another machine with the same name", csrtest.ForClient("n1").ByToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.UID = "uid-other" })), ReasonMachineGone},
		{"a deleted machine", csrtest.ForClient("n1").ByToken(t), joining(withMachine(deleting)), ReasonMachineGone},
		{"another provider's machine", csrtest.ForClient("n1").ByToken(t), joining(withMachine(ofOtherProvider)), ReasonNotOurs},
		{"a machine without a provider", csrtest.ForClient("n1").ByToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.Labels = nil })), ReasonNotOurs},
		{"an earlier attempt", csrtest.ForClient("n1").ByToken(t),
			joining(withMachine(func(m *v1beta1.Machine) {
				m.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2}
			})), ReasonTokenOutdated},
		{"an expired token", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) { f.Token.ExpiryTime = now }),
			ReasonTokenExpired},
		{"a token without an expiration", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) { f.Token.ExpiryTime = time.Time{} }),
			ReasonTokenExpired},
		{"a machine that has joined", csrtest.ForClient("n1").ByToken(t), joining(withMachine(joined)), ReasonAlreadyJoined},
		{"before the status contains the instance", csrtest.ForClient("n1").ByToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.Status.Instance = nil })), ReasonNameNotKnownYet},
		{"a provider that does not report the name", csrtest.ForClient("n1").ByToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.Status.Instance.NodeName = "" })), ReasonNameUnknown},
		{"another node's name", csrtest.ForClient("n2").ByToken(t), joining(), ReasonWrongName},
		{"a name of another machine", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) {
			f.OtherMachine = launched(joined)
		}), ReasonNameInUse},
		{"a name of another node", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) {
			f.Node = node("x", "acme:///2")
		}), ReasonNameInUse},
		{"a name of a node without a provider ID", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) {
			f.Node = node("x", "")
		}), ReasonNameInUse},
		{"a name of a node whose provider ID was written into the status", csrtest.ForClient("n1").ByToken(t),
			joining(withMachine(nodeID), func(f *Facts) { f.Node = node("x", "k3s://n1") }), ReasonNameInUse},
		{"a provider that was not asked", csrtest.ForClient("n1").ByToken(t), joining(func(f *Facts) { f.ReportedInstance = nil }),
			ReasonInstanceNotKnown},
		{"a provider that no longer reports the name", csrtest.ForClient("n1").ByToken(t),
			joining(func(f *Facts) { f.ReportedInstance.NodeName = "" }), ReasonNameUnknown},
		{"a name that was written into the status", csrtest.ForClient("n1").ByToken(t),
			joining(func(f *Facts) { f.ReportedInstance.NodeName = "n2" }), ReasonWrongName},

		{"an administrator's group", csrtest.ForClient("n1", csrtest.Organizations("system:masters")).ByToken(t), joining(), ReasonMalformed},
		{"an additional group", csrtest.ForClient("n1", csrtest.Organizations("system:nodes", "system:masters")).ByToken(t), joining(),
			ReasonMalformed},
		{"no group", csrtest.ForClient("n1", csrtest.Organizations()).ByToken(t), joining(), ReasonMalformed},
		{"the group twice", csrtest.ForClient("n1", csrtest.Organizations("system:nodes", "system:nodes")).ByToken(t), joining(),
			ReasonMalformed},
		{"a second name", csrtest.ForClient("n1", csrtest.Attribute(asn1.ObjectIdentifier{2, 5, 4, 3}, "system:node:n2"),
			csrtest.Attribute(asn1.ObjectIdentifier{2, 5, 4, 3}, "system:node:n1")).ByToken(t), joining(), ReasonMalformed},
		{"an additional attribute", csrtest.ForClient("n1", csrtest.Attribute(asn1.ObjectIdentifier{2, 5, 4, 11}, "unit")).ByToken(t), joining(),
			ReasonMalformed},
		{"another user's name", csrtest.ForClient("n1", csrtest.CommonName("admin")).ByToken(t), joining(), ReasonMalformed},
		{"no name", csrtest.ForClient("n1", csrtest.CommonName("")).ByToken(t), joining(), ReasonMalformed},
		{"an invalid node name", csrtest.ForClient("N1/../x").ByToken(t), joining(), ReasonMalformed},
		{"alternative names", csrtest.ForClient("n1", csrtest.DNSNames("kubernetes.default")).ByToken(t), joining(), ReasonMalformed},
		{"an alternative name that Go does not parse", csrtest.ForClient("n1", csrtest.OtherName(t, "n1")).ByToken(t), joining(), ReasonMalformed},
		{"a certificate authority", csrtest.ForClient("n1", csrtest.CertificateAuthority(t)).ByToken(t), joining(), ReasonMalformed},
		{"server usages", csrtest.ForClient("n1", csrtest.Usages(certificatesv1.UsageDigitalSignature,
			certificatesv1.UsageServerAuth)).ByToken(t), joining(), ReasonMalformed},
		{"an additional usage", csrtest.ForClient("n1", csrtest.Usages(certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth,
			certificatesv1.UsageServerAuth)).ByToken(t), joining(), ReasonMalformed},
		{"a missing usage", csrtest.ForClient("n1", csrtest.Usages(certificatesv1.UsageClientAuth)).ByToken(t), joining(), ReasonMalformed},

		{"a requester without the group of tokens", csrtest.ForClient("n1").ByUser(t, "system:bootstrap:abcdef"), joining(),
			ReasonNotOurs},
		{"a requester with an invalid token id",
			csrtest.ForClient("n1").ByUser(t, "system:bootstrap:../abc", "system:bootstrappers"), joining(),
			ReasonNotOurs},
		{"another user", csrtest.ForClient("n1").ByUser(t, "admin", "system:masters"), joining(), ReasonNotOurs},
		{"a serving certificate", csrtest.ForServing("n1", []string{"n1"}, nil).ByToken(t), joining(), ReasonNotOurs},
		{"another signer", csrtest.ForClient("n1", func(d *csrtest.Draft) {
			d.Signer = certificatesv1.KubeAPIServerClientSignerName
		}).ByToken(t), joining(), ReasonNotOurs},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.request, tc.facts, tc.want) })
	}
}

// Rules: client-certificate-for-token-bearer, certificate-name-from-provider.
func TestDecideNode(t *testing.T) {
	own, ips := []string{"n1"}, []string{"10.0.0.5"}
	for _, tc := range []struct {
		name    string
		request *certificatesv1.CertificateSigningRequest
		facts   Facts
		want    Reason
	}{
		{"a renewal", csrtest.ForClient("n1").ByNode(t, "n1"), running(), ReasonNodeRenews},
		{"a renewal while the machine drains", csrtest.ForClient("n1").ByNode(t, "n1"), running(withMachine(joined, deleting)),
			ReasonNodeRenews},
		{"another node's identity", csrtest.ForClient("n2").ByNode(t, "n1"), running(), ReasonMalformed},
		{"a renewal with an additional group", csrtest.ForClient("n1", csrtest.Organizations("system:nodes", "system:masters")).ByNode(t, "n1"),
			running(), ReasonMalformed},
		{"a renewal with alternative names", csrtest.ForClient("n1", csrtest.DNSNames("n1")).ByNode(t, "n1"), running(), ReasonMalformed},
		{"a node without a machine", csrtest.ForClient("n1").ByNode(t, "n1"), running(func(f *Facts) { f.Machine = nil }), ReasonNotOurs},
		{"a node of another provider", csrtest.ForClient("n1").ByNode(t, "n1"), running(withMachine(joined, ofOtherProvider)), ReasonNotOurs},
		{"before the Node is paired", csrtest.ForClient("n1").ByNode(t, "n1"), running(withMachine()), ReasonNotPairedYet},
		{"a recreated node", csrtest.ForClient("n1").ByNode(t, "n1"), running(func(f *Facts) { f.Node.UID = "other" }),
			ReasonNotPairedYet},
		{"a node of another instance", csrtest.ForClient("n1").ByNode(t, "n1"), running(func(f *Facts) {
			f.Node = node("uid-n1", "acme:///2")
		}), ReasonNotPairedYet},
		{"a node without a provider ID", csrtest.ForClient("n1").ByNode(t, "n1"), running(func(f *Facts) {
			f.Node = node("uid-n1", "")
		}), ReasonNotPairedYet},
		{"a provider ID of the class", csrtest.ForClient("n1").ByNode(t, "n1"), running(withMachine(joined, nodeID),
			func(f *Facts) { f.Node = markedNode("acme:///1") }), ReasonNodeRenews},
		{"a provider ID of another node in the status", csrtest.ForClient("n1").ByNode(t, "n1"),
			running(withMachine(joined, nodeID), func(f *Facts) { f.Node = node("uid-n1", "k3s://n1") }), ReasonNotPairedYet},
		{"a provider ID of another machine's node in the status", csrtest.ForClient("n1").ByNode(t, "n1"),
			running(withMachine(joined, nodeID), func(f *Facts) { f.Node = markedNode("acme:///2") }), ReasonNotPairedYet},
		{"a node that does not exist", csrtest.ForClient("n1").ByNode(t, "n1"), running(func(f *Facts) { f.Node = nil }),
			ReasonNotPairedYet},
		{"without the group of nodes", csrtest.ForClient("n1").ByUser(t, "system:node:n1"), running(), ReasonNotOurs},

		{"serving with its name and address", csrtest.ForServing("n1", own, ips).ByNode(t, "n1"), running(withAddresses),
			ReasonNodeServes},
		{"serving with all its names and addresses", csrtest.ForServing("n1", []string{"n1", "n1.internal.example"},
			[]string{"10.0.0.5", "2001:db8::5"}).ByNode(t, "n1"), running(withAddresses), ReasonNodeServes},
		{"serving with its name only, provider not asked", csrtest.ForServing("n1", own, nil).ByNode(t, "n1"), running(),
			ReasonNodeServes},
		{"serving, provider not asked yet", csrtest.ForServing("n1", own, ips).ByNode(t, "n1"), running(),
			ReasonInstanceNotKnown},
		{"serving, provider knows no addresses", csrtest.ForServing("n1", own, ips).ByNode(t, "n1"), running(func(f *Facts) {
			f.ReportedInstance = &ReportedInstance{Addresses: []corev1.NodeAddress{}}
		}), ReasonUnknownAddress},
		{"serving with another node's address", csrtest.ForServing("n1", own, []string{"10.0.0.5", "10.0.0.6"}).ByNode(t, "n1"),
			running(withAddresses), ReasonUnknownAddress},
		{"serving with another name", csrtest.ForServing("n1", []string{"n1", "registry.example"}, ips).ByNode(t, "n1"),
			running(withAddresses), ReasonUnknownAddress},
		{"serving with an address as a DNS name", csrtest.ForServing("n1", []string{"10.0.0.6"}, nil).ByNode(t, "n1"),
			running(withAddresses), ReasonUnknownAddress},
		{"serving with a wildcard", csrtest.ForServing("n1", []string{"*"}, nil).ByNode(t, "n1"), running(withAddresses),
			ReasonReservedAddress},
		{"serving without names", csrtest.ForServing("n1", nil, nil).ByNode(t, "n1"), running(withAddresses), ReasonMalformed},
		{"serving with an e-mail address", csrtest.ForServing("n1", own, nil, csrtest.Email).ByNode(t, "n1"), running(withAddresses),
			ReasonMalformed},
		{"serving with a URI", csrtest.ForServing("n1", own, nil, csrtest.URI).ByNode(t, "n1"), running(withAddresses), ReasonMalformed},
		{"serving with a name that Go does not parse", csrtest.ForServing("n1", own, nil, csrtest.OtherName(t, "n1")).ByNode(t, "n1"),
			running(withAddresses), ReasonMalformed},
		{"serving as another node", csrtest.ForServing("n2", own, nil).ByNode(t, "n1"), running(withAddresses), ReasonMalformed},
		{"serving with client usages",
			csrtest.ForServing("n1", own, nil, csrtest.Usages(certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth)).ByNode(t,
				"n1"), running(withAddresses), ReasonMalformed},
		{"serving as a certificate authority", csrtest.ForServing("n1", own, nil, csrtest.CertificateAuthority(t)).ByNode(t, "n1"),
			running(withAddresses), ReasonMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.request, tc.facts, tc.want) })
	}
}

func check(t *testing.T, csr *certificatesv1.CertificateSigningRequest, f Facts, want Reason) {
	t.Helper()
	got := Decide(csr, f)
	approved := []Reason{ReasonMachineJoins, ReasonNodeRenews, ReasonNodeServes}
	quiet := []Reason{ReasonNotOurs, ReasonMachineGone, ReasonNameNotKnownYet, ReasonNotPairedYet, ReasonInstanceNotKnown}
	if got.Reason != want {
		t.Errorf("reason %s (%s), want %s", got.Reason, got.Message, want)
	}
	if got.Approve != slices.Contains(approved, got.Reason) || got.Message == "" {
		t.Errorf("decision %+v does not match its reason, or has no message", got)
	}
	if got.Report == (got.Approve || slices.Contains(quiet, got.Reason)) {
		t.Errorf("Report is %v for reason %s", got.Report, got.Reason)
	}
}

func TestMalformedRequests(t *testing.T) {
	good := csrtest.ForClient("n1").PEM(t)
	block, _ := pem.Decode(good)
	broken := bytes.Clone(block.Bytes)
	broken[len(broken)-1] ^= 1
	for name, request := range map[string][]byte{
		"empty":         nil,
		"not PEM":       []byte("not PEM"),
		"too large":     append(bytes.Clone(good), bytes.Repeat([]byte("\n"), kubeletcsr.MaxRequest)...),
		"a certificate": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}),
		"two requests":  append(bytes.Clone(good), csrtest.ForClient("n2").PEM(t)...),
		"invalid DER": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST",
			Bytes: []byte{0x30, 0x03, 1, 2, 3}}),
		"a broken signature": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: broken}),
		"a name changed after signing": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST",
			Bytes: bytes.Replace(block.Bytes, []byte("node:n1"), []byte("node:n2"), 1)}),
	} {
		t.Run(name, func(t *testing.T) {
			csr := csrtest.ForClient("n1").ByToken(t)
			csr.Spec.Request = request
			check(t, csr, joining(), ReasonMalformed)
		})
	}
}

func TestPending(t *testing.T) {
	type condition = certificatesv1.CertificateSigningRequestCondition
	with := func(conditions ...condition) *certificatesv1.CertificateSigningRequest {
		csr := csrtest.ForClient("n1").ByToken(t)
		csr.Status.Conditions = conditions
		return csr
	}
	signed := with()
	signed.Status.Certificate = []byte("x")
	otherSigner := with()
	otherSigner.Spec.SignerName = "example.com/signer"
	for name, tc := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want bool
	}{
		"undecided": {with(), true},
		"approved": {with(certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}), false},
		"denied": {with(certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied,
			Status: corev1.ConditionTrue}), false},
		"failed": {with(certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed,
			Status: corev1.ConditionTrue}), false},
		"signed":         {signed, false},
		"another signer": {otherSigner, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := kubeletcsr.IsPending(tc.csr); got != tc.want {
				t.Errorf("Pending = %v, want %v", got, tc.want)
			}
			transformed, err := Transform(tc.csr.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			stored := transformed.(*certificatesv1.CertificateSigningRequest)
			if kubeletcsr.IsPending(stored) != tc.want || (len(stored.Spec.Request) > 0) != tc.want {
				t.Errorf("after Transform: pending %v, request of %d bytes", kubeletcsr.IsPending(stored), len(stored.Spec.Request))
			}
		})
	}
}

// FuzzDecide checks that no request causes a panic, and that an approved request contains only the name and addresses
// of the machine's node.
func FuzzDecide(f *testing.F) {
	f.Add(csrtest.ForClient("n1").PEM(f), true)
	f.Add(csrtest.ForClient("n2").PEM(f), true)
	f.Add(csrtest.ForClient("n1", csrtest.Organizations("system:nodes", "system:masters")).PEM(f), true)
	f.Add(csrtest.ForClient("n1", csrtest.OtherName(f, "n1")).PEM(f), false)
	f.Add(csrtest.ForServing("n1", []string{"n1"}, []string{"10.0.0.5"}).PEM(f), false)
	f.Add(csrtest.ForServing("n1", []string{"n1"}, []string{"10.0.0.6"}, csrtest.Email, csrtest.URI).PEM(f), false)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"), true)
	joins, serves := csrtest.ForClient("n1").ByToken(f), csrtest.ForServing("n1", nil, nil).ByNode(f, "n1")
	f.Fuzz(func(t *testing.T, data []byte, join bool) {
		csr, facts := serves.DeepCopy(), running(withAddresses)
		if join {
			csr, facts = joins.DeepCopy(), joining()
		}
		csr.Spec.Request = data
		v := Decide(csr, facts)
		if len(v.Message) > 1024 || strings.ContainsAny(v.Message, "\x00\n") {
			t.Errorf("message %q", v.Message)
		}
		if !v.Approve {
			return
		}
		r := readRequest(csr)
		addresses := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("2001:db8::5")}
		unknown := slices.ContainsFunc(r.IPs, func(ip netip.Addr) bool { return !slices.Contains(addresses, ip) })
		if r.RequestedNode != "n1" || r.Fault != "" || unknown || join && len(r.DNS)+len(r.IPs) > 0 {
			t.Errorf("approved %+v", r)
		}
	})
}
