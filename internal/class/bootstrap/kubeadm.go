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

// joinConfiguration holds the fields that Machinist sets in kubeadm's JoinConfiguration.
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

// kubeadmJoinConfig returns the JoinConfiguration in JSON, or "" if the endpoint, its CA certificate or the token is
// missing. kubeadm reads the ConfigMap cluster-info, which must be signed with the token, and verifies the cluster's CA
// by the hash of its public key. The Node gets the taint machinist.dev/uninitialized.
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
