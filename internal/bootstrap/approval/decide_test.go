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

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/bootstrap"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// launched is a machine whose instance exists and has not joined.
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

func others(m *v1beta1.Machine) { m.Labels[v1beta1.LabelProvider] = "other" }

func joining(changes ...func(*Facts)) Facts {
	f := Facts{
		Now: now, Provider: "acme", Machine: launched(),
		Token: &bootstrap.Record{Owner: "uid-m-1", Expires: now.Add(time.Minute)},
	}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func running(changes ...func(*Facts)) Facts {
	f := Facts{Now: now, Provider: "acme", Machine: launched(joined), Node: &Node{UID: "uid-n1", ProviderID: "acme:///1"}}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func withMachine(changes ...func(*v1beta1.Machine)) func(*Facts) {
	return func(f *Facts) { f.Machine = launched(changes...) }
}

func withAddresses(f *Facts) {
	f.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
		{Type: corev1.NodeExternalIP, Address: "2001:db8::5"},
		{Type: corev1.NodeInternalDNS, Address: "n1.internal.example"},
	}
}

// Rule: client-certificate-for-token-bearer.
func TestAJoinIsApprovedForExactlyTheMachineOfTheToken(t *testing.T) {
	const encipherment = certificatesv1.UsageKeyEncipherment
	for _, tc := range []struct {
		name    string
		request *certificatesv1.CertificateSigningRequest
		facts   Facts
		want    Reason
	}{
		{"as it should be", forClient("n1").byToken(t), joining(), ReasonMachineJoins},
		{"with the usage of an RSA key",
			forClient("n1", usages(encipherment, certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth)).byToken(t), joining(), ReasonMachineJoins},
		{"again, after it registered and before it was paired", forClient("n1").byToken(t), joining(func(f *Facts) {
			f.Node = &Node{UID: "x", ProviderID: "acme:///1"}
		}), ReasonMachineJoins},

		{"no such token", forClient("n1").byToken(t), joining(func(f *Facts) { f.Token = nil }), ReasonTokenUnknown},
		{"a token of no machine", forClient("n1").byToken(t), joining(func(f *Facts) { f.Token.Owner, f.Machine = "", nil }),
			ReasonTokenUnknown},
		{"no such machine", forClient("n1").byToken(t), joining(func(f *Facts) { f.Machine = nil }), ReasonMachineGone},
		{"a machine of the same name", forClient("n1").byToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.UID = "uid-other" })), ReasonMachineGone},
		{"a deleted machine", forClient("n1").byToken(t), joining(withMachine(deleting)), ReasonMachineGone},
		{"another provider's machine", forClient("n1").byToken(t), joining(withMachine(others)), ReasonNotOurs},
		{"a machine that nobody has claimed", forClient("n1").byToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.Labels = nil })), ReasonNotOurs},
		{"a former attempt", forClient("n1").byToken(t),
			joining(withMachine(func(m *v1beta1.Machine) {
				m.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2}
			})), ReasonTokenOutdated},
		{"an expired token", forClient("n1").byToken(t), joining(func(f *Facts) { f.Token.Expires = now }),
			ReasonTokenExpired},
		{"a token without an end", forClient("n1").byToken(t), joining(func(f *Facts) { f.Token.Expires = time.Time{} }),
			ReasonTokenExpired},
		{"a machine that has joined", forClient("n1").byToken(t), joining(withMachine(joined)), ReasonAlreadyJoined},
		{"before the status is written", forClient("n1").byToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.Status.Instance = nil })), ReasonNameNotKnownYet},
		{"a provider that does not tell the name", forClient("n1").byToken(t),
			joining(withMachine(func(m *v1beta1.Machine) { m.Status.Instance.NodeName = "" })), ReasonNameUnknown},
		{"another node's name", forClient("n2").byToken(t), joining(), ReasonWrongName},
		{"a name that is another machine's", forClient("n1").byToken(t), joining(func(f *Facts) {
			f.OtherMachine = launched(joined)
		}), ReasonNameInUse},
		{"a name that is another node's", forClient("n1").byToken(t), joining(func(f *Facts) {
			f.Node = &Node{UID: "x", ProviderID: "acme:///2"}
		}), ReasonNameInUse},
		{"a name that is a node's of unknown origin", forClient("n1").byToken(t), joining(func(f *Facts) {
			f.Node = &Node{UID: "x"}
		}), ReasonNameInUse},

		{"an administrator's group", forClient("n1", organizations("system:masters")).byToken(t), joining(), ReasonMalformed},
		{"one more group", forClient("n1", organizations("system:nodes", "system:masters")).byToken(t), joining(),
			ReasonMalformed},
		{"no group", forClient("n1", organizations()).byToken(t), joining(), ReasonMalformed},
		{"the group twice", forClient("n1", organizations("system:nodes", "system:nodes")).byToken(t), joining(),
			ReasonMalformed},
		{"a second name", forClient("n1", attribute(attributeCommonName, "system:node:n2"),
			attribute(attributeCommonName, "system:node:n1")).byToken(t), joining(), ReasonMalformed},
		{"an attribute more", forClient("n1", attribute(asn1.ObjectIdentifier{2, 5, 4, 11}, "unit")).byToken(t), joining(),
			ReasonMalformed},
		{"a person's name", forClient("n1", commonName("admin")).byToken(t), joining(), ReasonMalformed},
		{"no name", forClient("n1", commonName("")).byToken(t), joining(), ReasonMalformed},
		{"a name that no node has", forClient("N1/../x").byToken(t), joining(), ReasonMalformed},
		{"alternative names", forClient("n1", dnsNames("kubernetes.default")).byToken(t), joining(), ReasonMalformed},
		{"an alternative name of a hidden form", forClient("n1", otherName(t, "n1")).byToken(t), joining(), ReasonMalformed},
		{"a certificate authority", forClient("n1", certificateAuthority(t)).byToken(t), joining(), ReasonMalformed},
		{"server usages", forClient("n1", usages(certificatesv1.UsageDigitalSignature,
			certificatesv1.UsageServerAuth)).byToken(t), joining(), ReasonMalformed},
		{"one usage more", forClient("n1", usages(certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth,
			certificatesv1.UsageServerAuth)).byToken(t), joining(), ReasonMalformed},
		{"one usage less", forClient("n1", usages(certificatesv1.UsageClientAuth)).byToken(t), joining(), ReasonMalformed},

		{"not a token's group", forClient("n1").by(t, "system:bootstrap:abcdef"), joining(), ReasonNotOurs},
		{"not a token's form", forClient("n1").by(t, "system:bootstrap:../abc", "system:bootstrappers"), joining(),
			ReasonNotOurs},
		{"a person", forClient("n1").by(t, "admin", "system:masters"), joining(), ReasonNotOurs},
		{"a serving certificate", forServing("n1", []string{"n1"}, nil).byToken(t), joining(), ReasonNotOurs},
		{"another signer", forClient("n1", func(d *draft) {
			d.signer = certificatesv1.KubeAPIServerClientSignerName
		}).byToken(t), joining(), ReasonNotOurs},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.request, tc.facts, tc.want) })
	}
}

// Rule: client-certificate-for-token-bearer.
func TestANodeIsApprovedForItselfOnly(t *testing.T) {
	own, ips := []string{"n1"}, []string{"10.0.0.5"}
	for _, tc := range []struct {
		name    string
		request *certificatesv1.CertificateSigningRequest
		facts   Facts
		want    Reason
	}{
		{"a renewal", forClient("n1").byNode(t, "n1"), running(), ReasonNodeRenews},
		{"a renewal while the machine drains", forClient("n1").byNode(t, "n1"), running(withMachine(joined, deleting)),
			ReasonNodeRenews},
		{"another node's identity", forClient("n2").byNode(t, "n1"), running(), ReasonMalformed},
		{"a renewal with one more group", forClient("n1", organizations("system:nodes", "system:masters")).byNode(t, "n1"),
			running(), ReasonMalformed},
		{"a renewal with alternative names", forClient("n1", dnsNames("n1")).byNode(t, "n1"), running(), ReasonMalformed},
		{"a node of no machine", forClient("n1").byNode(t, "n1"), running(func(f *Facts) { f.Machine = nil }), ReasonNotOurs},
		{"a node of another provider", forClient("n1").byNode(t, "n1"), running(withMachine(joined, others)), ReasonNotOurs},
		{"before it is paired", forClient("n1").byNode(t, "n1"), running(withMachine()), ReasonNotPairedYet},
		{"a node made anew", forClient("n1").byNode(t, "n1"), running(func(f *Facts) { f.Node.UID = "other" }),
			ReasonNotPairedYet},
		{"a node that is gone", forClient("n1").byNode(t, "n1"), running(func(f *Facts) { f.Node = nil }),
			ReasonNotPairedYet},
		{"without a node's group", forClient("n1").by(t, "system:node:n1"), running(), ReasonNotOurs},

		{"serving under its name and address", forServing("n1", own, ips).byNode(t, "n1"), running(withAddresses),
			ReasonNodeServes},
		{"serving under everything it has", forServing("n1", []string{"n1", "n1.internal.example"},
			[]string{"10.0.0.5", "2001:db8::5"}).byNode(t, "n1"), running(withAddresses), ReasonNodeServes},
		{"serving under its name alone, the provider not asked", forServing("n1", own, nil).byNode(t, "n1"), running(),
			ReasonNodeServes},
		{"serving, before the provider was asked", forServing("n1", own, ips).byNode(t, "n1"), running(),
			ReasonAddressesNotKnown},
		{"serving, the provider knows no address", forServing("n1", own, ips).byNode(t, "n1"), running(func(f *Facts) {
			f.Addresses = []corev1.NodeAddress{}
		}), ReasonUnknownAddress},
		{"serving under another's address", forServing("n1", own, []string{"10.0.0.5", "10.0.0.6"}).byNode(t, "n1"),
			running(withAddresses), ReasonUnknownAddress},
		{"serving under another's name", forServing("n1", []string{"n1", "kubernetes.default.svc"}, ips).byNode(t, "n1"),
			running(withAddresses), ReasonUnknownAddress},
		{"serving under an address written as a name", forServing("n1", []string{"10.0.0.6"}, nil).byNode(t, "n1"),
			running(withAddresses), ReasonUnknownAddress},
		{"serving under any name", forServing("n1", []string{"*"}, nil).byNode(t, "n1"), running(withAddresses),
			ReasonUnknownAddress},
		{"serving under nothing", forServing("n1", nil, nil).byNode(t, "n1"), running(withAddresses), ReasonMalformed},
		{"serving with an e-mail address", forServing("n1", own, nil, email).byNode(t, "n1"), running(withAddresses),
			ReasonMalformed},
		{"serving with a URI", forServing("n1", own, nil, uri).byNode(t, "n1"), running(withAddresses), ReasonMalformed},
		{"serving with a name of a hidden form", forServing("n1", own, nil, otherName(t, "n1")).byNode(t, "n1"),
			running(withAddresses), ReasonMalformed},
		{"serving as another node", forServing("n2", own, nil).byNode(t, "n1"), running(withAddresses), ReasonMalformed},
		{"serving with client usages",
			forServing("n1", own, nil, usages(certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth)).byNode(t,
				"n1"), running(withAddresses), ReasonMalformed},
		{"serving as a certificate authority", forServing("n1", own, nil, certificateAuthority(t)).byNode(t, "n1"),
			running(withAddresses), ReasonMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.request, tc.facts, tc.want) })
	}
}

func check(t *testing.T, csr *certificatesv1.CertificateSigningRequest, f Facts, want Reason) {
	t.Helper()
	got := Decide(csr, f)
	approved := []Reason{ReasonMachineJoins, ReasonNodeRenews, ReasonNodeServes}
	quiet := []Reason{ReasonNotOurs, ReasonMachineGone, ReasonNameNotKnownYet, ReasonNotPairedYet, ReasonAddressesNotKnown}
	if got.Reason != want {
		t.Errorf("decided %s (%s), want %s", got.Reason, got.Message, want)
	}
	if got.Approve != slices.Contains(approved, got.Reason) || got.Message == "" {
		t.Errorf("decided %+v", got)
	}
	if got.Report == (got.Approve || slices.Contains(quiet, got.Reason)) {
		t.Errorf("tell is %v for %s", got.Report, got.Reason)
	}
}

func TestWhatIsNotOneSignedRequestIsMalformed(t *testing.T) {
	good := forClient("n1").pem(t)
	block, _ := pem.Decode(good)
	broken := bytes.Clone(block.Bytes)
	broken[len(broken)-1] ^= 1
	for name, request := range map[string][]byte{
		"nothing":            nil,
		"no PEM":             []byte("not PEM"),
		"padded to any size": append(bytes.Clone(good), bytes.Repeat([]byte("\n"), maxRequest)...),
		"a certificate":      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}),
		"two":                append(bytes.Clone(good), forClient("n2").pem(t)...),
		"garbage in it": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST",
			Bytes: []byte{0x30, 0x03, 1, 2, 3}}),
		"a broken signature": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: broken}),
		"a name put in later": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST",
			Bytes: bytes.Replace(block.Bytes, []byte("node:n1"), []byte("node:n2"), 1)}),
	} {
		t.Run(name, func(t *testing.T) {
			csr := forClient("n1").byToken(t)
			csr.Spec.Request = request
			check(t, csr, joining(), ReasonMalformed)
		})
	}
}

func TestOnlyOpenRequestsForKubeletsArePending(t *testing.T) {
	type condition = certificatesv1.CertificateSigningRequestCondition
	with := func(conditions ...condition) *certificatesv1.CertificateSigningRequest {
		csr := forClient("n1").byToken(t)
		csr.Status.Conditions = conditions
		return csr
	}
	signed := with()
	signed.Status.Certificate = []byte("x")
	others := with()
	others.Spec.SignerName = "example.com/signer"
	for name, tc := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want bool
	}{
		"open": {with(), true},
		"approved": {with(certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}), false},
		"denied": {with(certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied,
			Status: corev1.ConditionTrue}), false},
		"failed": {with(certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed,
			Status: corev1.ConditionTrue}), false},
		"signed":         {signed, false},
		"another signer": {others, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Pending(tc.csr); got != tc.want {
				t.Errorf("Pending = %v", got)
			}
			transformed, err := Transform(tc.csr.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			stored := transformed.(*certificatesv1.CertificateSigningRequest)
			if Pending(stored) != tc.want || (len(stored.Spec.Request) > 0) != tc.want {
				t.Errorf("after the transform: pending %v, request of %d bytes", Pending(stored), len(stored.Spec.Request))
			}
		})
	}
}

// FuzzDecide feeds hostile requests to a world in which a good one would be approved: nothing may panic, and whatever
// is approved must be for the machine's node and its addresses.
func FuzzDecide(f *testing.F) {
	f.Add(forClient("n1").pem(f), true)
	f.Add(forClient("n2").pem(f), true)
	f.Add(forClient("n1", organizations("system:nodes", "system:masters")).pem(f), true)
	f.Add(forClient("n1", otherName(f, "n1")).pem(f), false)
	f.Add(forServing("n1", []string{"n1"}, []string{"10.0.0.5"}).pem(f), false)
	f.Add(forServing("n1", []string{"n1"}, []string{"10.0.0.6"}, email, uri).pem(f), false)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"), true)
	joins, serves := forClient("n1").byToken(f), forServing("n1", nil, nil).byNode(f, "n1")
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
		others := slices.ContainsFunc(r.ips, func(ip netip.Addr) bool { return !slices.Contains(addresses, ip) })
		if r.wanted != "n1" || r.fault != "" || others || join && len(r.dns)+len(r.ips) > 0 {
			t.Errorf("approved %+v", r)
		}
	})
}
