package bootstrap

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/url"

	"machinist.dev/machinist/api/v1beta1"
)

// joinConfiguration holds the fields of kubeadm's JoinConfiguration that Machinist sets.
// https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/#kubeadm-k8s-io-v1beta4-JoinConfiguration
type joinConfiguration struct {
	APIVersion       string           `json:"apiVersion"`
	Kind             string           `json:"kind"`
	Discovery        discovery        `json:"discovery"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
}

type discovery struct {
	BootstrapToken tokenDiscovery `json:"bootstrapToken"`
}

type tokenDiscovery struct {
	Token             string   `json:"token"`
	APIServerEndpoint string   `json:"apiServerEndpoint"`
	CACertHashes      []string `json:"caCertHashes"`
}

type nodeRegistration struct {
	Taints []taint `json:"taints"`
}

type taint struct {
	Key    string `json:"key"`
	Effect string `json:"effect"`
}

// kubeadmJoinConfig returns the JoinConfiguration in JSON. It is empty if the endpoint, its CA certificate or the token
// is missing. kubeadm finds the cluster with the ConfigMap cluster-info, which must be signed with the token.
// kubeadm trusts the cluster if the hash of the public key of the cluster's CA is one of these hashes. The Node
// gets the taint machinist.dev/uninitialized.
func (v Values) kubeadmJoinConfig() string {
	endpoint, err := url.Parse(v.APIEndpoint)
	hashes := publicKeyHashes(v.CABundle)
	if err != nil || endpoint.Host == "" || v.BootstrapToken == "" || len(hashes) == 0 {
		return ""
	}
	host := endpoint.Host
	if endpoint.Port() == "" {
		host += ":443"
	}
	config, err := json.Marshal(joinConfiguration{
		APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "JoinConfiguration",
		Discovery: discovery{BootstrapToken: tokenDiscovery{Token: v.BootstrapToken, APIServerEndpoint: host,
			CACertHashes: hashes}},
		NodeRegistration: nodeRegistration{Taints: []taint{{Key: v1beta1.NodeTaintUninitialized, Effect: "NoSchedule"}}},
	})
	if err != nil {
		return ""
	}
	return string(config)
}

// publicKeyHashes returns a hash for each certificate in a PEM bundle: the hash of its public key, in the format of
// kubeadm.
func publicKeyHashes(bundle []byte) (hashes []string) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return hashes
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
			hashes = append(hashes, "sha256:"+hex.EncodeToString(sum[:]))
		}
	}
}
