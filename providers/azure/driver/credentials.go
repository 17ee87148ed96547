package driver

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
)

// These are the keys of a Secret with credentials.
const (
	keyTenant       = "tenantID"
	keySubscription = "subscriptionID"
	keyClient       = "clientID"
	// keySecret and keyCertificate are mutually exclusive. If the Secret contains neither key, the workload identity of
	// the process is used.
	keySecret      = "clientSecret"
	keyCertificate = "clientCertificate"
)

var (
	uuidFormat   = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	tenantFormat = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,62}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,62}[A-Za-z0-9])?)+$`)
)

const maxSecretBytes = 16 << 10

type account struct {
	tenant, subscription, client string
	secret                       string
	certificates                 []*x509.Certificate
	key                          crypto.PrivateKey
}

// parseCredentials trims white space, because Secrets created from files end with a newline. Errors name the invalid
// key but never contain its value.
func parseCredentials(c provider.Credentials) (account, error) {
	if c.IsEmpty() {
		return account{}, provider.Errorf(provider.Unauthenticated,
			"the credentials are missing; create a Secret with the keys %s, %s and %s", keyTenant, keySubscription, keyClient)
	}
	known := []string{keyTenant, keySubscription, keyClient, keySecret, keyCertificate}
	for _, key := range c.Keys() {
		if !slices.Contains(known, key) {
			return account{}, malformed("the credentials have the unknown key %.128q; the known keys are %s", key,
				strings.Join(known, ", "))
		}
	}
	get := func(key string) string {
		value, _ := c.Get(key)
		return strings.TrimSpace(string(value.Reveal()))
	}
	a := account{tenant: get(keyTenant), subscription: strings.ToLower(get(keySubscription)), client: get(keyClient),
		secret: get(keySecret)}
	switch {
	case !uuidFormat.MatchString(a.tenant) && (len(a.tenant) > 253 || !tenantFormat.MatchString(a.tenant)):
		return account{}, malformed("the key %q of the credentials must hold the ID or a domain of a tenant", keyTenant)
	case !uuidFormat.MatchString(a.subscription):
		return account{}, malformed("the key %q of the credentials must hold the ID of a subscription", keySubscription)
	case !uuidFormat.MatchString(a.client):
		return account{}, malformed("the key %q of the credentials must hold the ID of an application", keyClient)
	}
	_, hasSecret := c.Get(keySecret)
	pem, hasCertificate := c.Get(keyCertificate)
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case hasSecret && hasCertificate:
		return account{}, malformed("the credentials have both %q and %q", keySecret, keyCertificate)
	case hasSecret && (a.secret == "" || len(a.secret) > maxSecretBytes || strings.ContainsFunc(a.secret, unprintable)):
		return account{},
			malformed("the key %q of the credentials must hold 1 to %d printable ASCII characters without spaces", keySecret,
				maxSecretBytes)
	case !hasCertificate:
		return a, nil
	case len(pem.Reveal()) > maxSecretBytes:
		return account{}, malformed("the key %q of the credentials is longer than %d bytes", keyCertificate, maxSecretBytes)
	}
	var err error
	// The parser's error may quote its input, so it is dropped.
	if a.certificates, a.key, err = azidentity.ParseCertificates(pem.Reveal(), nil); err != nil {
		return account{},
			malformed("the key %q of the credentials must hold a certificate and its private key, not encrypted, in PEM or PKCS #12", keyCertificate)
	}
	return a, nil
}

// Grant allows a Secret without a client secret or certificate to use the workload identity of the process.
type Grant struct {
	// Namespace is the namespace of the Secret.
	Namespace string
	// Client is the ID of the application in the Secret.
	Client string
}

// ParseGrant parses a text in the format NAMESPACE/CLIENT-ID.
func ParseGrant(text string) (Grant, error) {
	namespace, client, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || !uuidFormat.MatchString(client) {
		return Grant{}, fmt.Errorf("%.256q is not NAMESPACE/CLIENT-ID, such as team-a/00000000-0000-4000-8000-000000000003",
			text)
	}
	return Grant{namespace, client}, nil
}

// needsWorkloadIdentity reports whether the credentials contain neither a client secret nor a certificate.
func needsWorkloadIdentity(c provider.Credentials) bool {
	_, hasSecret := c.Get(keySecret)
	_, hasCertificate := c.Get(keyCertificate)
	return !hasSecret && !hasCertificate && !c.IsEmpty()
}

// checkGrant returns an error if the account needs the process's workload identity but has no grant for it. If the
// process has no workload identity, checkGrant returns nil, because the method token reports this error.
func (o *Options) checkGrant(a account, namespace string) error {
	if a.secret != "" || a.key != nil || o.FederatedTokenFile == "" {
		return nil
	}
	for _, g := range o.WorkloadIdentityFor {
		if g.Namespace == namespace && strings.EqualFold(g.Client, a.client) {
			return nil
		}
	}
	return provider.Errorf(provider.PermissionDenied,
		"credentials in namespace %q without %q and %q may not use the workload identity of the provider as application %s; to allow it, run the provider with --azure-workload-identity-for=%s/%s",
		namespace, keySecret, keyCertificate, a.client, namespace, a.client)
}

func malformed(format string, args ...any) error {
	return provider.Errorf(provider.InvalidArgument, format, args...)
}

// token returns the credential that requests access tokens for the account.
func (o *Options) token(a account, client azcore.ClientOptions) (azcore.TokenCredential, error) {
	var token azcore.TokenCredential
	var err error
	switch {
	case a.secret != "":
		token, err = azidentity.NewClientSecretCredential(a.tenant, a.client, a.secret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: client, DisableInstanceDiscovery: o.PrivateCloud})
	case a.key != nil:
		token, err = azidentity.NewClientCertificateCredential(a.tenant, a.client, a.certificates, a.key,
			&azidentity.ClientCertificateCredentialOptions{ClientOptions: client, DisableInstanceDiscovery: o.PrivateCloud,
				SendCertificateChain: len(a.certificates) > 1})
	case o.FederatedTokenFile == "":
		return nil, provider.Errorf(provider.Unauthenticated,
			"the credentials have neither %q nor %q, and the process has no workload identity", keySecret, keyCertificate)
	default:
		token, err = azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: client, DisableInstanceDiscovery: o.PrivateCloud,
			TenantID: a.tenant, ClientID: a.client, TokenFilePath: o.FederatedTokenFile,
		})
	}
	if err != nil {
		// The error may quote the credentials, so it is dropped.
		return nil, provider.Errorf(provider.InvalidArgument, "the credentials cannot be used")
	}
	return token, nil
}
