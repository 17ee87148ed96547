package driver

import (
	"crypto/x509"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// The keys of the Secret with credentials.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyCA       = "ca.crt"
)

const maxCredentialBytes = 1024

type account struct {
	username, password string
	// roots are the certificate authorities of the vCenter. Nil means those of the system.
	roots *x509.CertPool
}

// parseCredentials returns errors that name a key and contain no value.
func parseCredentials(c provider.Credentials) (account, error) {
	var a account
	for _, key := range c.Keys() {
		value, _ := c.Get(key)
		text := string(value.Reveal())
		switch key {
		case keyUsername, keyPassword:
			if text == "" || len(text) > maxCredentialBytes || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
				return account{}, malformed("the key " + key + " is empty, too long, or contains a control character such as a " +
					"line break")
			}
			if key == keyUsername {
				a.username = text
			} else {
				a.password = text
			}
		case keyCA:
			a.roots = x509.NewCertPool()
			if !a.roots.AppendCertsFromPEM(value.Reveal()) {
				return account{}, malformed("the key " + keyCA + " contains no certificates in the PEM format")
			}
		default:
			return account{}, malformed("the key " + strings.ToValidUTF8(key, "?") + " is not one of username, password and " +
				"ca.crt; the address of the vCenter is in the flag --vsphere-vcenter")
		}
	}
	if a.username == "" || a.password == "" {
		return account{}, malformed("the keys username and password are required")
	}
	return a, nil
}

func malformed(problem string) error {
	return provider.Errorf(provider.InvalidArgument, "credentials: %s", problem)
}
