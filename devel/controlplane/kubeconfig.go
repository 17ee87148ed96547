package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig file with the address, the certificate authority and the credentials in config.
// Other settings of config are ignored. A concurrent reader of the file gets either the complete old or the complete
// new content.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "machinist"
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("encode kubeconfig %s: %w", path, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

// userConfig returns a client configuration without client-side throttling, so only the API server limits the rate of
// the client's requests.
func (cp *ControlPlane) userConfig(name string, groups ...string) (*rest.Config, error) {
	pair, err := cp.pki.authority.client(name, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: cp.Endpoint(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   cp.CA(),
			CertData: pair.cert,
			KeyData:  pair.key,
		},
		QPS: -1,
	}, nil
}
