package operator

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// explainUnauthorized adds to a rejection with 401 that the credentials of the kubeconfig file have expired, if they
// have: an API server does not say why it does not know who asks.
func (k *kubeconfig) explainUnauthorized(err error) error {
	if k == nil {
		return err
	}
	config, _, missing := k.current()
	if missing != nil {
		return err
	}
	what, at := expiry(config)
	if what == "" || time.Now().Before(at) {
		return fmt.Errorf("%w: the credentials in --%s=%s", err, k.flag, k.path)
	}
	return fmt.Errorf("%w: the %s in --%s=%s expired at %s: renew it", err, what, k.flag, k.path,
		at.UTC().Format(time.RFC3339))
}

// expiry returns what authenticates the requests of a configuration, and when it expires; nothing where that is not
// known.
func expiry(config *rest.Config) (what string, at time.Time) {
	certificate := config.CertData
	if len(certificate) == 0 && config.CertFile != "" {
		certificate, _ = os.ReadFile(config.CertFile)
	}
	if certificates, err := certutil.ParseCertsPEM(certificate); err == nil && len(certificates) > 0 {
		return "client certificate", certificates[0].NotAfter
	}
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		if content, err := os.ReadFile(config.BearerTokenFile); err == nil {
			token = strings.TrimSpace(string(content))
		}
	}
	if at := tokenExpiry(token); !at.IsZero() {
		return "token", at
	}
	return "", time.Time{}
}

// tokenExpiry reads the claim "exp" of a JSON Web Token. Whether the token is genuine does not matter here: its text
// goes into a log line only.
func tokenExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var times struct {
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(claims, &times); err != nil || times.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(times.Expires, 0)
}
