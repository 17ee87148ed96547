//go:build e2e && linux

package fidelity

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func certificateRequest(name, signer string) func(client.Object) string {
	return func(o client.Object) string {
		csr, ok := o.(*certificatesv1.CertificateSigningRequest)
		if !ok || csr.Spec.SignerName != signer {
			return ""
		}
		block, _ := pem.Decode(csr.Spec.Request)
		request, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || request.Subject.CommonName != "system:node:"+name {
			return ""
		}
		var approved []string
		for _, c := range csr.Status.Conditions {
			approved = append(approved, string(c.Type))
		}
		return line("named", csr.GenerateName, "by", csr.Spec.Username, csr.Spec.Groups, "for", csr.Spec.Usages,
			request.Subject.Organization, request.PublicKeyAlgorithm, "names", request.DNSNames, "addresses",
			len(request.IPAddresses), "lasts", csr.Spec.ExpirationSeconds != nil, approved,
			fmt.Sprint("certificate ", len(csr.Status.Certificate) > 0))
	}
}

func TestKubeletRequestsClientCertificate(t *testing.T) {
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
		return c.record.states(t, 0, certificateRequest(n.name, signer), "certificate true")
	})
}

func TestKubeletRequestsServingCertificate(t *testing.T) {
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		return c.record.states(t, 0, certificateRequest(n.name, certificatesv1.KubeletServingSignerName), "certificate false")
	})
}

// nodeState returns a function that describes a Node as its kubelet reports it, without values that always differ
// between two machines.
func nodeState(name string) func(client.Object) string {
	return func(o client.Object) string {
		n, ok := o.(*corev1.Node)
		if !ok || n.Name != name {
			return ""
		}
		var conditions, labels, annotations, taints, addresses, resources, handlers []string
		for _, c := range n.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
		}
		for key, value := range n.Labels {
			labels = append(labels, key+"="+value)
		}
		for key, value := range n.Annotations {
			if key != "node.alpha.kubernetes.io/ttl" { // kube-controller-manager sets the annotation ttl.
				annotations = append(annotations, key+"="+value)
			}
		}
		for _, taint := range n.Spec.Taints {
			// kube-controller-manager sets the taints with this prefix.
			if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				taints = append(taints, taint.ToString())
			}
		}
		for _, a := range n.Status.Addresses {
			addresses = append(addresses, string(a.Type))
		}
		for _, kind := range slices.Sorted(maps.Keys(n.Status.Capacity)) {
			// Huge pages depend on the host, and the real node does not manage local storage.
			if !strings.HasPrefix(string(kind), corev1.ResourceHugePagesPrefix) && kind != corev1.ResourceEphemeralStorage {
				resources = append(resources, string(kind))
			}
		}
		for _, h := range n.Status.RuntimeHandlers {
			handlers = append(handlers, fmt.Sprintf("%q", h.Name))
		}
		slices.Sort(labels)
		slices.Sort(annotations)
		info := n.Status.NodeInfo
		return line("conditions", conditions, "labels", labels, "annotations", annotations, "taints", taints, "addresses",
			addresses, "resources", resources, "handlers", handlers, "features", n.Status.Features != nil, "provider",
			n.Spec.ProviderID, "port", n.Status.DaemonEndpoints.KubeletEndpoint.Port, info.OperatingSystem,
			info.Architecture, info.KubeletVersion, info.KubeProxyVersion, info.BootID != "", info.MachineID != "",
			info.SystemUUID != "", info.OSImage != "", info.ContainerRuntimeVersion != "")
	}
}

// The kubelet first registers a Node that is not Ready, with labels and taints. Then the Node becomes Ready.
func TestKubeletRegistersNode(t *testing.T) {
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		return c.record.states(t, 0, nodeState(n.name), "Ready=True")
	})
}

// The kubelet creates the CSINode and the Lease and reports Ready in a random order.
func TestKubeletCreatesCSINodeAndLease(t *testing.T) {
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		csi := c.record.distinctStates(t, func(o client.Object) string {
			if x, ok := o.(*storagev1.CSINode); ok && x.Name == n.name {
				return line("CSINode", slices.Collect(maps.Keys(x.Annotations)), len(x.Spec.Drivers), owners(x))
			}
			return ""
		}, "CSINode")
		return append(csi, c.record.distinctStates(t, func(o client.Object) string {
			if x, ok := o.(*coordinationv1.Lease); ok && x.Name == n.name {
				return line("Lease", *x.Spec.HolderIdentity, *x.Spec.LeaseDurationSeconds, owners(x))
			}
			return ""
		}, "Lease")...)
	})
}

func owners(o client.Object) (all []string) {
	for _, owner := range o.GetOwnerReferences() {
		all = append(all, fmt.Sprint(owner.APIVersion, owner.Kind, owner.Name, owner.Controller != nil))
	}
	return all
}
