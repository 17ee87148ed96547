package driver

import (
	"cmp"
	"crypto/x509"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// These are the keys of a Secret with credentials: either a clouds.yaml or an application credential, and optionally
// certificate authorities.
const (
	keyClouds = "clouds.yaml"
	keyCloud  = "cloud"

	keyAuthURL   = "authURL"
	keyID        = "applicationCredentialID"
	keySecret    = "applicationCredentialSecret"
	keyRegion    = "region"
	keyInterface = "interface"

	keyCA = "ca.crt"
)

const (
	maxCredentialBytes = 64 << 10
	maxValueBytes      = 4 << 10
)

type account struct {
	auth gophercloud.AuthOptions
	// region is the default for a providerSpec without a region. If region is also empty, the catalog must contain only
	// one region.
	region string
	// endpointInterface selects the endpoints of a service: public, internal or admin.
	endpointInterface string
	roots             *x509.CertPool
}

// cloudsFile contains the used part of a clouds.yaml.
// https://docs.openstack.org/openstacksdk/latest/user/config/configuration.html
type cloudsFile struct {
	Clouds map[string]cloudEntry `json:"clouds"`
}

type cloudEntry struct {
	Auth         cloudAuth `json:"auth"`
	AuthType     string    `json:"auth_type,omitempty"`
	Profile      string    `json:"profile,omitempty"`
	RegionName   string    `json:"region_name,omitempty"`
	Interface    string    `json:"interface,omitempty"`
	EndpointType string    `json:"endpoint_type,omitempty"`
	Verify       *bool     `json:"verify,omitempty"`
	CACert       string    `json:"cacert,omitempty"`
	Cert         string    `json:"cert,omitempty"`
	Key          string    `json:"key,omitempty"`
}

type cloudAuth struct {
	AuthURL                     string `json:"auth_url,omitempty"`
	Username                    string `json:"username,omitempty"`
	UserID                      string `json:"user_id,omitempty"`
	Password                    string `json:"password,omitempty"`
	UserDomainID                string `json:"user_domain_id,omitempty"`
	UserDomainName              string `json:"user_domain_name,omitempty"`
	ProjectID                   string `json:"project_id,omitempty"`
	ProjectName                 string `json:"project_name,omitempty"`
	ProjectDomainID             string `json:"project_domain_id,omitempty"`
	ProjectDomainName           string `json:"project_domain_name,omitempty"`
	DomainID                    string `json:"domain_id,omitempty"`
	DomainName                  string `json:"domain_name,omitempty"`
	ApplicationCredentialID     string `json:"application_credential_id,omitempty"`
	ApplicationCredentialName   string `json:"application_credential_name,omitempty"`
	ApplicationCredentialSecret string `json:"application_credential_secret,omitempty"`
}

func malformed(format string, args ...any) error {
	return provider.Errorf(provider.InvalidArgument, format, args...)
}

// parse trims white space, because Secrets created from files end with a newline. Errors name the invalid key but never
// contain its value.
func (o *Options) parse(c provider.Credentials) (account, error) {
	if c.IsEmpty() {
		return account{}, provider.Errorf(provider.Unauthenticated,
			"the credentials are missing: create a Secret with the key %s, or with the keys %s, %s and %s", keyClouds, keyAuthURL,
			keyID, keySecret)
	}
	known := []string{keyClouds, keyCloud, keyCA}
	if _, isFile := c.Get(keyClouds); !isFile {
		known = []string{keyAuthURL, keyID, keySecret, keyRegion, keyInterface, keyCA}
	}
	for _, key := range c.Keys() {
		if !slices.Contains(known, key) {
			return account{}, malformed("the credentials have an unknown key %.128q; allowed: %s", key, strings.Join(known, ", "))
		}
		if value, _ := c.Get(key); len(value.Reveal()) > maxCredentialBytes {
			return account{}, malformed("the key %q of the credentials is longer than %d bytes", key, maxCredentialBytes)
		}
	}
	get := func(key string) string {
		value, _ := c.Get(key)
		return strings.TrimSpace(string(value.Reveal()))
	}
	entry := cloudEntry{
		Auth: cloudAuth{AuthURL: get(keyAuthURL), ApplicationCredentialID: get(keyID),
			ApplicationCredentialSecret: get(keySecret)},
		RegionName: get(keyRegion), Interface: get(keyInterface),
	}
	where := "the credentials"
	if raw, isFile := c.Get(keyClouds); isFile {
		var err error
		if entry, err = findEntry(raw.Reveal(), get(keyCloud)); err != nil {
			return account{}, err
		}
		where = "the key \"" + keyClouds + "\" of the credentials"
	}
	a, err := o.checkEntry(entry, where)
	if err != nil {
		return account{}, err
	}
	if ca, given := c.Get(keyCA); given {
		if a.roots, err = x509.SystemCertPool(); err != nil {
			a.roots = x509.NewCertPool() // The host has no certificate authorities.
		}
		if !a.roots.AppendCertsFromPEM(ca.Reveal()) {
			return account{}, malformed("the key %q of the credentials has no certificate in PEM", keyCA)
		}
	}
	return a, nil
}

// findEntry returns an entry of a clouds.yaml. Without a name, it returns the only entry, or the entry "openstack".
func findEntry(raw []byte, name string) (cloudEntry, error) {
	var file cloudsFile
	// The parser's error may contain secrets.
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return cloudEntry{}, malformed("the key %q of the credentials is not a clouds.yaml", keyClouds)
	}
	if name == "" && len(file.Clouds) == 1 {
		name = slices.Collect(maps.Keys(file.Clouds))[0]
	}
	entry, found := file.Clouds[cmp.Or(name, Name)]
	if !found {
		return cloudEntry{}, malformed(
			"the key %q of the credentials has %d clouds, but no cloud %.128q; set the key %q to the name of a cloud",
			keyClouds, len(file.Clouds), cmp.Or(name, Name), keyCloud)
	}
	return entry, nil
}

func (o *Options) checkEntry(e cloudEntry, where string) (account, error) {
	for name, value := range map[string]string{"cacert": e.CACert, "cert": e.Cert, "key": e.Key} {
		if value != "" {
			return account{}, malformed("%s has %q, but a Secret must not name files; use the key %q for certificate authorities",
				where, name, keyCA)
		}
	}
	for _, value := range []string{e.RegionName, e.Auth.AuthURL, e.Auth.Password, e.Auth.ApplicationCredentialSecret,
		e.Auth.ApplicationCredentialID, e.Auth.Username, e.Auth.ProjectName} {
		if len(value) > maxValueBytes {
			return account{}, malformed("%s has a value longer than %d bytes", where, maxValueBytes)
		}
	}
	switch {
	case e.Verify != nil && !*e.Verify:
		return account{}, malformed("%s has verify: false; set the certificate authorities in the key %q instead", where,
			keyCA)
	case e.Profile != "":
		return account{}, malformed("%s has a profile, which is not supported; set auth_url and the other values directly",
			where)
	case e.Auth.AuthURL == "":
		return account{}, malformed("%s lacks the URL of the identity service (%s, or auth.auth_url in %s)", where, keyAuthURL,
			keyClouds)
	}
	if err := o.checkURL(e.Auth.AuthURL); err != nil {
		return account{}, malformed("the URL of the identity service in %s %w", where, err)
	}
	if len(o.AuthURLs) > 0 && !slices.ContainsFunc(o.AuthURLs, func(allowed string) bool {
		return strings.TrimRight(allowed, "/") == strings.TrimRight(e.Auth.AuthURL, "/")
	}) {
		return account{}, provider.Errorf(provider.PermissionDenied,
			"the provider does not allow the identity service in %s; allow the service with --openstack-auth-url", where)
	}
	a := account{region: e.RegionName,
		endpointInterface: strings.TrimSuffix(cmp.Or(e.Interface, e.EndpointType, "public"), "URL")}
	if !slices.Contains([]string{"public", "internal", "admin"}, a.endpointInterface) {
		return account{}, malformed("the interface in %s is %.64q, not public, internal or admin", where, a.endpointInterface)
	}
	var err error
	a.auth, err = authOptions(e, where)
	return a, err
}

// authOptions returns the options for signing in with an application credential or a password.
func authOptions(e cloudEntry, where string) (gophercloud.AuthOptions, error) {
	a := e.Auth
	o := gophercloud.AuthOptions{IdentityEndpoint: a.AuthURL, AllowReauth: true}
	userDomain := func() {
		o.DomainID, o.DomainName = cmp.Or(a.UserDomainID, a.DomainID), ""
		if o.DomainID == "" {
			o.DomainName = cmp.Or(a.UserDomainName, a.DomainName)
		}
	}
	switch {
	case a.ApplicationCredentialID != "" || a.ApplicationCredentialName != "":
		if a.ApplicationCredentialSecret == "" {
			return o, malformed("%s has an application credential without its secret", where)
		}
		o.ApplicationCredentialID, o.ApplicationCredentialSecret = a.ApplicationCredentialID, a.ApplicationCredentialSecret
		if a.ApplicationCredentialID == "" {
			o.ApplicationCredentialName, o.UserID, o.Username = a.ApplicationCredentialName, a.UserID, a.Username
			userDomain()
			if o.UserID == "" && (o.Username == "" || o.DomainID == "" && o.DomainName == "") {
				return o, malformed("%s has the name of an application credential, but not its user; set its ID, or the user "+
					"and the domain", where)
			}
		}
	case a.Password != "":
		o.UserID, o.Username, o.Password = a.UserID, a.Username, a.Password
		if o.UserID == "" {
			userDomain()
			if o.Username == "" || o.DomainID == "" && o.DomainName == "" {
				return o, malformed("%s has a password, but not the user and the user's domain", where)
			}
		}
		o.Scope = &gophercloud.AuthScope{ProjectID: a.ProjectID}
		if a.ProjectID == "" {
			o.Scope.ProjectName, o.Scope.DomainID = a.ProjectName, a.ProjectDomainID
			if a.ProjectDomainID == "" {
				o.Scope.DomainName = cmp.Or(a.ProjectDomainName, o.DomainName)
			}
			if o.Scope.ProjectName == "" || o.Scope.DomainID == "" && o.Scope.DomainName == "" {
				return o, malformed("%s lacks the project name or the domain of the project", where)
			}
		}
	default:
		return o, malformed("%s has neither an application credential nor a password", where)
	}
	return o, nil
}

const allowAddress = "to allow connections to it, set --openstack-allow-address"

// checkURL returns an error if the text is not a service URL, or if the rules do not allow its host.
func (o *Options) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && u.Scheme != "http":
		return errors.New("is not a URL such as https://identity.example.com/v3")
	case u.Scheme == "http" && !o.PlainHTTP:
		return errors.New("has no TLS; to allow this, set --openstack-plain-http")
	}
	if denied, ok := errors.AsType[*endpoints.DeniedError](o.Endpoints.CheckHost(u.Hostname())); ok {
		return errors.New("has a host that is " + denied.Kind + "; " + allowAddress)
	}
	return nil
}
