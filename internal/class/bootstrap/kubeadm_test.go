package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// authority returns a CA certificate in PEM and the hash of its public key, computed as kubeadm documents.
func authority(t *testing.T) (bundle []byte, hash string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), fmt.Sprintf("sha256:%x", sha256.Sum256(public))
}

// Rule: kubeadm-join-config.
func TestKubeadmJoinConfig(t *testing.T) {
	first, firstHash := authority(t)
	second, secondHash := authority(t)
	v := Values{APIEndpoint: "https://api.example.com", CABundle: append(first, second...), BootstrapToken: "abcdef.0123456789abcdef"}
	template := []byte("#cloud-config\nwrite_files:\n- path: /join.yaml\n  content: |\n    <<KUBEADM_JOIN_CONFIG>>\n")
	if !NeedsToken(template) {
		t.Error("NeedsToken returns false for KUBEADM_JOIN_CONFIG")
	}
	out, err := Render(template, v)
	if err != nil {
		t.Fatal(err)
	}
	var cloudConfig struct {
		WriteFiles []struct {
			Content string `json:"content"`
		} `json:"write_files"`
	}
	if err := yaml.Unmarshal(out, &cloudConfig); err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"kubeadm.k8s.io/v1beta4","kind":"JoinConfiguration","discovery":{"bootstrapToken":{` +
		`"token":"abcdef.0123456789abcdef","apiServerEndpoint":"api.example.com:443","caCertHashes":["` + firstHash + `","` +
		secondHash + `"]}},"nodeRegistration":{"taints":[{"key":"machinist.dev/uninitialized","effect":"NoSchedule"}]}}`
	if got := strings.TrimSpace(cloudConfig.WriteFiles[0].Content); got != want {
		t.Errorf("the configuration is\n%s, want\n%s", got, want)
	}
	for name, incomplete := range map[string]Values{
		"no CA certificate": {APIEndpoint: v.APIEndpoint, BootstrapToken: v.BootstrapToken},
		"no endpoint":       {CABundle: first, BootstrapToken: v.BootstrapToken},
		"no token":          {APIEndpoint: v.APIEndpoint, CABundle: first},
	} {
		if _, err := Render(template, incomplete); err == nil || !strings.Contains(err.Error(), "<<KUBEADM_JOIN_CONFIG>>") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
