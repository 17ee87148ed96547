package host

import "testing"

func TestServerTLSBootstrap(t *testing.T) {
	for text, want := range map[string]bool{"": false, "serverTLSBootstrap: false": false,
		"serverTLSBootstrap: true": true} {
		config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text
		b, _, err := parseBootstrap(Spec{UserData: cloudConfig(pathKubeconfig, kubeconfig("", ""),
			pathKubeletConfig, config)})
		if err != nil {
			t.Error(err)
		} else if b.serverTLS != want {
			t.Errorf("%q: requests a serving certificate: %v", text, b.serverTLS)
		}
	}
}
