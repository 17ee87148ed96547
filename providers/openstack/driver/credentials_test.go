package driver

import (
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

const cloudsFileText = `
clouds:
  one:
    profile: ""
    identity_api_version: 3
    region_name: r1
    interface: internal
    auth: {auth_url: "https://identity.example/v3", username: u, password: hush, user_domain_name: Default,
      project_name: p, project_domain_id: d}
  key:
    endpoint_type: publicURL
    auth: {auth_url: "https://identity.example", application_credential_id: id, application_credential_secret: hush}
`

func secret(pairs ...string) provider.Credentials {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	return provider.NewCredentials(data)
}

func TestBothFormsOfCredentialsAreAccepted(t *testing.T) {
	for name, test := range map[string]struct {
		credentials               provider.Credentials
		region, endpointInterface string
		withoutPassword           bool
	}{
		"clouds.yaml with a password": {secret("clouds.yaml", cloudsFileText, "cloud", "one\n"), "r1", "internal", false},
		"clouds.yaml with credential": {secret("clouds.yaml", cloudsFileText, "cloud", "key"), "", "public", true},
		"application credential": {secret("authURL", "https://identity.example/v3\n", "applicationCredentialID", "id\n",
			"applicationCredentialSecret", "hush\n", "region", "r2", "interface", "admin"), "r2", "admin", true},
	} {
		a, err := (&Options{}).parse(test.credentials)
		if err != nil || a.region != test.region || a.endpointInterface != test.endpointInterface ||
			(a.auth.ApplicationCredentialSecret == "hush") != test.withoutPassword ||
			(a.auth.Password == "hush") == test.withoutPassword {
			t.Errorf("%s: got %+v, %v", name, a, err)
		}
	}
}

func TestMalformedCredentialsAreRefused(t *testing.T) {
	key := []string{"authURL", "https://identity.example/v3", "applicationCredentialID", "id",
		"applicationCredentialSecret", "hush"}
	with := func(pairs ...string) provider.Credentials {
		return secret(append(key[:len(key):len(key)], pairs...)...)
	}
	cloud := func(text string) provider.Credentials {
		return secret("clouds.yaml", "clouds: {openstack: {"+text+"}}")
	}
	const auth = `auth: {auth_url: "https://identity.example", application_credential_id: id, application_credential_secret: hush}`
	for name, test := range map[string]struct {
		credentials provider.Credentials
		options     Options
		message     string
	}{
		"empty":                      {secret(), Options{}, "the credentials are missing"},
		"an unknown key":             {with("password", "hush"), Options{}, `unknown key "password"`},
		"both forms":                 {with("clouds.yaml", "hush"), Options{}, `unknown key "applicationCredentialID"`},
		"no TLS":                     {with("authURL", "http://hush.example"), Options{}, "--openstack-plain-http"},
		"not a URL":                  {with("authURL", "hush"), Options{}, "is not a URL"},
		"service not allowed":        {with(), Options{AuthURLs: []string{"https://other.example"}}, "--openstack-auth-url"},
		"unknown interface":          {with("interface", "private"), Options{}, `"private", not public`},
		"invalid certificate":        {with("ca.crt", "hush"), Options{}, `"ca.crt"`},
		"no secret":                  {secret(key[:4]...), Options{}, "without its secret"},
		"invalid YAML":               {secret("clouds.yaml", "hush: ["), Options{}, "is not a clouds.yaml"},
		"unknown cloud":              {secret("clouds.yaml", cloudsFileText, "cloud", "two"), Options{}, `no cloud "two"`},
		"ambiguous cloud":            {secret("clouds.yaml", cloudsFileText), Options{}, `set the key "cloud"`},
		"verify is false":            {cloud(auth + ", verify: false"), Options{}, "verify: false"},
		"a file":                     {cloud(auth + ", cacert: /etc/hush"), Options{}, `has "cacert"`},
		"a profile":                  {cloud(auth + ", profile: hush"), Options{}, "has a profile"},
		"no URL":                     {cloud("auth: {username: hush}"), Options{}, "lacks the URL"},
		"no password in clouds.yaml": {cloud(`auth: {auth_url: "https://a.example", username: hush}`), Options{}, "neither an application credential"},
		"no user":                    {cloud(`auth: {auth_url: "https://a.example", password: hush}`), Options{}, "not the user"},
		"no project":                 {cloud(`auth: {auth_url: "https://a.example", user_id: u, password: hush}`), Options{}, "lacks the project"},
		"credential without user":    {cloud(`auth: {auth_url: "https://a.example", application_credential_name: hush, application_credential_secret: s}`), Options{}, "but not its user"},
		"value too long":             {with("region", strings.Repeat("r", 5000)), Options{}, "longer than"},
	} {
		_, err := test.options.parse(test.credentials)
		if err == nil || !strings.Contains(err.Error(), test.message) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want an error with %q and without values", name, err, test.message)
		}
	}
}
