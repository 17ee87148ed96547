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

// The certificates of kubelets. Where the room that approves them runs, an instance with a bootstrap token registers
// only with a certificate that was approved, and asks for another one to serve with.

var requestKind = certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")

// asking is what a request for a certificate is in truth.
type asking struct {
	// machine is whose kubelet asks for what is its own; empty for everybody and everything else.
	machine uid
	// joins says that it asks with its bootstrap token.
	joins bool
}

// identity is what a certificate is asked for.
type identity struct {
	user   string
	groups []string
	signer string
	node   string
	ips    []string
}

func joining(in *instance) identity {
	id, _, _ := strings.Cut(strings.TrimPrefix(in.bootstrapToken, "token="), ".")
	return identity{
		user: "system:bootstrap:" + id, groups: []string{"system:bootstrappers", "system:authenticated"},
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: in.NodeName,
	}
}

func serving(in *instance) identity {
	i := identity{user: "system:node:" + in.NodeName, groups: []string{"system:nodes", "system:authenticated"},
		signer: certificatesv1.KubeletServingSignerName, node: in.NodeName}
	for _, a := range slices.Concat(in.Addresses, in.later) {
		i.ips = append(i.ips, a.Address)
	}
	return i
}

// request makes a CertificateSigningRequest. A key is as good as any: it is derived from what is asked for.
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

// ask sends a request of an instance's kubelet.
func (w *World) ask(in *instance, name string, i identity, joins bool) error {
	csr, err := i.request(name)
	if err != nil {
		return err
	}
	w.safety.requests[name] = asking{machine: in.MachineUID, joins: joins}
	return w.target.Client("kubelet").Create(context.Background(), csr)
}

// hasAsked reports whether a kubelet has sent a request.
func (w *World) hasAsked(name string) bool {
	_, asked := w.safety.requests[name]
	return asked
}

func (in *instance) joinName() string { return "join-" + strings.TrimPrefix(in.ProviderID, "fake:///") }

func (in *instance) serveName() string {
	return "serve-" + strings.TrimPrefix(in.ProviderID, "fake:///")
}

// asksToJoin reports whether an instance has to ask for a certificate before it is a node.
func (w *World) asksToJoin(in *instance) bool {
	return w.safety.optionalReconcilers.has(Approval) && strings.HasPrefix(in.bootstrapToken, "token=")
}

// maySpeak reports whether an instance may register: with its token, or with the certificate that it got for it.
func (w *World) maySpeak(in *instance) bool {
	if !w.asksToJoin(in) {
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

// signing returns what kubelets may ask for now.
func (w *World) signing() (out []choice) {
	if !w.safety.optionalReconcilers.has(Approval) || w.safety.targetUnreachable() {
		return nil
	}
	for _, in := range w.cloud.instances {
		if in.State != provider.StateRunning || in.hung || !w.asksToJoin(in) {
			continue
		}
		if !in.registered && !w.hasAsked(in.joinName()) && w.tokenGood(in) {
			out = append(out, choice{"kubelet of " + in.ProviderID + " asks to join", func() error {
				return w.ask(in, in.joinName(), joining(in), true)
			}})
		}
		node := w.node(in.NodeName)
		if in.registered && !w.hasAsked(in.serveName()) && node != nil && w.hostOf(node) == in {
			out = append(out, choice{"kubelet of " + in.ProviderID + " asks to serve", func() error {
				return w.ask(in, in.serveName(), serving(in), false)
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

// forge asks for a certificate that nobody must get, in the name of one of the machines that there are then.
func forge(how, i int) Action {
	ways := []string{"with a token that is no machine's", "with another machine's name", "as one node for another",
		"under an address of its own", "with a token that was used", "as somebody else"}
	return Action{Name: "ask for a certificate " +
		ways[how], Do: func(ctx context.Context, w *World, _ client.Client) error {
		if len(w.cloud.instances) == 0 {
			return nil
		}
		// Only who has a token can be robbed of it.
		victim, other := w.cloud.instances[i%len(w.cloud.instances)], w.cloud.instances[(i+1)%len(w.cloud.instances)]
		if !w.asksToJoin(victim) {
			return nil
		}
		asked := joining(victim)
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
			asked = serving(victim)
			asked.ips = append(asked.ips, "192.0.2.1")
		case 4:
			if m := w.oracle.machines[victim.MachineUID]; m == nil || m.Status.NodeRef == nil {
				return nil // It would be as good as the kubelet's own.
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

// deleteJoining deletes a machine whose kubelet has asked to join, and has no answer yet.
func deleteJoining() Action {
	joining := func(w *World) *v1beta1.Machine {
		for _, in := range w.cloud.instances {
			csr, m := w.requestNamed(in.joinName()), w.oracle.machines[in.MachineUID]
			if csr != nil && !approved(csr) && m != nil && m.DeletionTimestamp.IsZero() {
				return m
			}
		}
		return nil
	}
	return Action{
		Name: "delete a machine that joins",
		Do: func(ctx context.Context, w *World, c client.Client) error {
			m := joining(w)
			if m == nil {
				return nil
			}
			w.logf("it is %s", m.Name)
			return client.IgnoreNotFound(c.Delete(ctx,
				&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}))
		},
		After: func(w *World) bool { return joining(w) != nil || w.clock.Since(w.lastAction) > time.Minute },
	}
}

// tidyTokens removes the tokens that people made.
func tidyTokens() Action {
	return Action{Name: "remove one's own tokens", Do: func(ctx context.Context, w *World, _ client.Client) error {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}}
		return client.IgnoreNotFound(w.hand(w.target).Delete(ctx, s))
	}}
}

// certificatesMissing says which machines have not got what they asked for.
func (w *World) certificatesMissing() (missing []string) {
	if !w.safety.optionalReconcilers.has(Approval) {
		return nil
	}
	for _, in := range w.cloud.instances {
		if !w.asksToJoin(in) {
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

// forgeries is what happens while machines join.
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
	return append(actions, tidyTokens())
}
