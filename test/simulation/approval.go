package simulation

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// This file simulates the certificates of kubelets. If the Approval controller runs, an instance with a bootstrap token
// can register only with an approved certificate. Then it requests a certificate for serving.

var requestKind = certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")

// requester is the real sender of a certificate request.
type requester struct {
	// machine is the UID of the sender's machine, if a kubelet requests a certificate for its own machine. For other
	// senders, machine is empty.
	machine uid
	// joins is true if the kubelet uses its bootstrap token for the request.
	joins bool
}

type identity struct {
	user   string
	groups []string
	signer string
	node   string
	ips    []string
}

func joinIdentity(in *instance) identity {
	id, _, _ := strings.Cut(strings.TrimPrefix(in.bootstrapToken, "token="), ".")
	return identity{
		user: "system:bootstrap:" + id, groups: []string{"system:bootstrappers", "system:authenticated"},
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: in.NodeName,
	}
}

func servingIdentity(in *instance) identity {
	i := identity{user: "system:node:" + in.NodeName, groups: []string{"system:nodes", "system:authenticated"},
		signer: certificatesv1.KubeletServingSignerName, node: in.NodeName}
	for _, a := range slices.Concat(in.Addresses, in.laterAddresses) {
		i.ips = append(i.ips, a.Address)
	}
	return i
}

// request creates a CertificateSigningRequest. The private key is derived from the user and the node, because the
// simulation works with any key.
func (i identity) request(name string) (*certificatesv1.CertificateSigningRequest, error) {
	seed := sha256.Sum256([]byte(i.user + i.node))
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" +
		i.node, Organization: []string{"system:nodes"}}}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	if i.signer == certificatesv1.KubeletServingSignerName {
		usages[1], template.DNSNames = certificatesv1.UsageServerAuth, []string{i.node}
		for _, ip := range i.ips {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
		}
	}
	der, err := x509.CreateCertificateRequest(nil, template, ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		return nil, err
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	csr.Spec.Username, csr.Spec.Groups, csr.Spec.SignerName, csr.Spec.Usages = i.user, i.groups, i.signer, usages
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return csr, nil
}

func (w *World) requestCertificate(in *instance, name string, i identity, joins bool) error {
	csr, err := i.request(name)
	if err != nil {
		return err
	}
	w.safety.requests[name] = requester{machine: in.MachineUID, joins: joins}
	return w.target.Client("kubelet").Create(context.Background(), csr)
}

func (w *World) hasRequested(name string) bool {
	_, asked := w.safety.requests[name]
	return asked
}

func (in *instance) joinName() string { return "join-" + strings.TrimPrefix(in.ProviderID, "fake:///") }

func (in *instance) serveName() string {
	return "serve-" + strings.TrimPrefix(in.ProviderID, "fake:///")
}

func (w *World) needsJoinCertificate(in *instance) bool {
	return w.safety.optionalReconcilers.has(Approval) && strings.HasPrefix(in.bootstrapToken, "token=")
}

// mayRegister reports whether an instance may register with its token, or with the certificate for the token.
func (w *World) mayRegister(in *instance) bool {
	if !w.needsJoinCertificate(in) {
		return w.tokenGood(in)
	}
	csr := w.requestNamed(in.joinName())
	return csr != nil && len(csr.Status.Certificate) > 0
}

func (w *World) requestNamed(name string) *certificatesv1.CertificateSigningRequest {
	for _, o := range w.target.Snapshot(requestKind) {
		if o.GetName() == name {
			return o.(*certificatesv1.CertificateSigningRequest)
		}
	}
	return nil
}

func (w *World) signing() (out []choice) {
	if !w.safety.optionalReconcilers.has(Approval) || w.safety.targetUnreachable() {
		return nil
	}
	for _, in := range w.cloud.instances {
		if in.State != provider.StateRunning || in.hung || !w.needsJoinCertificate(in) {
			continue
		}
		if !in.registered && !w.hasRequested(in.joinName()) && w.tokenGood(in) {
			out = append(out, choice{"kubelet of " + in.ProviderID + " requests a certificate to join", func() error {
				return w.requestCertificate(in, in.joinName(), joinIdentity(in), true)
			}})
		}
		node := w.node(in.NodeName)
		if in.registered && !w.hasRequested(in.serveName()) && node != nil && w.hostOf(node) == in {
			out = append(out, choice{"kubelet of " + in.ProviderID + " requests a serving certificate", func() error {
				return w.requestCertificate(in, in.serveName(), servingIdentity(in), false)
			}})
		}
	}
	return out
}

func approved(csr *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// forge returns an action of an attacker that requests a certificate in the name of an existing machine. This
// certificate must not be approved.
func forge(how, i int) Action {
	ways := []string{"with a token of no machine", "with another machine's name", "as one node for another",
		"for a foreign address", "with a token that was used", "as another user"}
	return Action{Name: "request a certificate " +
		ways[how], Do: func(ctx context.Context, w *World, _ client.Client) error {
		if len(w.cloud.instances) == 0 {
			return nil
		}
		// A token can be stolen only while it exists.
		victim, other := w.cloud.instances[i%len(w.cloud.instances)], w.cloud.instances[(i+1)%len(w.cloud.instances)]
		if !w.needsJoinCertificate(victim) {
			return nil
		}
		asked := joinIdentity(victim)
		switch how {
		case 0:
			asked.user = "system:bootstrap:abcdef"
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"},
				Type: "bootstrap.kubernetes.io/token"}
			s.Data = map[string][]byte{"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
				"expiration": []byte(w.clock.at.Add(time.Hour).Format(time.RFC3339))}
			if err := client.IgnoreAlreadyExists(w.hand(w.target).Create(ctx, s)); err != nil {
				return err
			}
		case 1:
			if other == victim {
				return nil
			}
			asked.node = other.NodeName
		case 2:
			if other == victim {
				return nil
			}
			asked.user, asked.groups, asked.node = "system:node:"+victim.NodeName, []string{"system:nodes"}, other.NodeName
		case 3:
			asked = servingIdentity(victim)
			asked.ips = append(asked.ips, "192.0.2.1")
		case 4:
			if m := w.oracle.machines[victim.MachineUID]; m == nil || m.Status.NodeRef == nil {
				return nil // The request would equal the kubelet's own.
			}
		case 5:
			asked.user, asked.groups = "system:serviceaccount:default:default", []string{"system:serviceaccounts"}
		}
		csr, err := asked.request(fmt.Sprintf("forged-%d-%d", how, i))
		if err != nil {
			return err
		}
		return client.IgnoreAlreadyExists(w.target.Client(intruder).Create(ctx, csr))
	}}
}

func deleteJoining() Action {
	joiningMachine := func(w *World) *v1beta1.Machine {
		for _, in := range w.cloud.instances {
			csr, m := w.requestNamed(in.joinName()), w.oracle.machines[in.MachineUID]
			if csr != nil && !approved(csr) && m != nil && m.DeletionTimestamp.IsZero() {
				return m
			}
		}
		return nil
	}
	return Action{
		Name: "delete a joining machine",
		Do: func(ctx context.Context, w *World, c client.Client) error {
			m := joiningMachine(w)
			if m == nil {
				return nil
			}
			w.logf("the machine is %s", m.Name)
			return client.IgnoreNotFound(c.Delete(ctx,
				&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}))
		},
		Condition: func(w *World) bool { return joiningMachine(w) != nil || w.clock.Since(w.lastAction) > time.Minute },
	}
}

func removeForgedToken() Action {
	return Action{Name: "remove the forged token", Do: func(ctx context.Context, w *World, _ client.Client) error {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}}
		return client.IgnoreNotFound(w.hand(w.target).Delete(ctx, s))
	}}
}

func (w *World) certificatesMissing() (missing []string) {
	if !w.safety.optionalReconcilers.has(Approval) {
		return nil
	}
	for _, in := range w.cloud.instances {
		if !w.needsJoinCertificate(in) {
			continue
		}
		for _, name := range []string{in.joinName(), in.serveName()} {
			if csr := w.requestNamed(name); csr == nil || len(csr.Status.Certificate) == 0 {
				missing = append(missing, name+" was not approved")
			}
		}
	}
	return missing
}

func forgeries(r *rand.Rand) []Action {
	var actions []Action
	switch r.IntN(4) {
	case 3:
		actions = append(actions, scale(3), deleteJoining())
	case 0:
		actions = append(actions, scale(3))
	case 1:
		actions = append(actions, roll("a"))
	case 2:
		actions = append(actions, deleteMachine(r.IntN(2)))
	}
	for range 1 + r.IntN(3) {
		wait := []time.Duration{0, 0, 5 * time.Second, 21 * time.Second}[r.IntN(4)]
		actions = append(actions, forge(r.IntN(6), r.IntN(4)).after(wait))
	}
	return append(actions, removeForgedToken())
}
