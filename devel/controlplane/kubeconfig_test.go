package controlplane

import (
	"path/filepath"
	"testing"
)

func TestKubeconfigOfAUser(t *testing.T) {
	ca, err := newAuthority("kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	cp := &ControlPlane{port: 1, pki: &pki{authority: ca}}
	want, err := cp.UserConfig("system:node:a", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readKubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != want.Host || string(got.CAData) != string(want.CAData) ||
		string(got.CertData) != string(want.CertData) || string(got.KeyData) != string(want.KeyData) {
		t.Errorf("read %v, want %v", got, want)
	}
}
