package driver

import (
	"cmp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
)

// readCredentials reads the credentials from the description and from the old system's Secret, and writes a
// clouds.yaml. The Secret may contain a clouds.yaml, the keys of an old system, or the names of the environment
// variables of an old controller.
func (t *translation) readCredentials(secret provider.Credentials) {
	get := func(keys ...string) string {
		for _, key := range keys {
			value, _ := secret.Get(key)
			if text := strings.TrimSpace(string(value.Reveal())); text != "" {
				return text
			}
		}
		return ""
	}
	inSpec := !slices.Contains([]string{provider.SourceGardener, provider.SourceOpenShift, provider.SourceClusterAPI},
		t.format)
	cloud := ""
	switch t.format {
	case provider.SourceOpenShift:
		cloud = t.old.String("cloudName")
	case provider.SourceClusterAPI:
		cloud = cmp.Or(t.old.Object("machine").Object("identityRef").String("cloudName"),
			t.old.Object("cluster").Object("identityRef").String("cloudName"))
	}
	entry := cloudEntry{}
	if file := get(keyClouds); file != "" {
		var err error
		if entry, err = findEntry([]byte(file), cmp.Or(get(keyCloud), cloud)); err != nil {
			t.credentialsFinding(provider.FindingBlocker, provider.FindingInvalidField, keyClouds, err.Error())
		}
	}
	a := &entry.Auth
	fromSecret := cmp.Or(a.AuthURL, get("identityEndpoint", keyAuthURL, "OS_AUTH_URL"))
	inDescription := func(name string) string {
		if !inSpec {
			return ""
		}
		return strings.TrimSpace(t.old.String(name))
	}
	for _, field := range []struct {
		to   *string
		spec []string // fields of cloudProviderSpec
		keys []string // other keys of a Secret
	}{
		{&a.AuthURL, []string{"identityEndpoint"}, []string{keyAuthURL, "OS_AUTH_URL"}},
		{&a.Username, []string{"username"}, []string{"OS_USER_NAME", "OS_USERNAME"}},
		{&a.Password, []string{"password"}, []string{"OS_PASSWORD"}},
		{&a.ApplicationCredentialID, []string{keyID}, []string{"OS_APPLICATION_CREDENTIAL_ID"}},
		{&a.ApplicationCredentialName, nil, []string{"applicationCredentialName", "OS_APPLICATION_CREDENTIAL_NAME"}},
		{&a.ApplicationCredentialSecret, []string{keySecret}, []string{"OS_APPLICATION_CREDENTIAL_SECRET"}},
		{&a.ProjectName, []string{"projectName", "tenantName"}, []string{"OS_PROJECT_NAME", "OS_TENANT_NAME"}},
		{&a.ProjectID, []string{"projectID", "tenantID"}, []string{"OS_PROJECT_ID", "OS_TENANT_ID"}},
		{&a.DomainName, []string{"domainName"}, []string{"OS_DOMAIN_NAME"}},
		{&a.DomainID, nil, []string{"domainID", "OS_DOMAIN_ID"}},
		{&a.UserDomainName, nil, []string{"userDomainName", "OS_USER_DOMAIN_NAME"}},
		{&a.UserDomainID, nil, []string{"userDomainID", "OS_USER_DOMAIN_ID"}},
		{&entry.RegionName, nil, []string{keyRegion, "OS_REGION_NAME"}},
		{&entry.Interface, nil, []string{keyInterface}},
	} {
		for _, name := range field.spec {
			*field.to = cmp.Or(*field.to, inDescription(name), get(name))
		}
		*field.to = cmp.Or(*field.to, get(field.keys...))
	}
	t.chooseIdentityService(a, fromSecret, inDescription)
	t.credentials = map[string][]byte{}
	if ca := get(keyCA, "caCert", "cacert"); ca != "" {
		t.credentials[keyCA] = []byte(ca + "\n")
	}
	t.reportMissing(a)
	t.reportUnsupported(&entry, get("insecure") == "true", get("clientCert") != "")
	if a.ApplicationCredentialID != "" {
		// The ID identifies the user and the project.
		*a = cloudAuth{AuthURL: a.AuthURL, ApplicationCredentialID: a.ApplicationCredentialID,
			ApplicationCredentialSecret: a.ApplicationCredentialSecret}
	}
	entry.AuthType = ""
	raw, err := yaml.Marshal(cloudsFile{Clouds: map[string]cloudEntry{Name: entry}})
	if err == nil { // Marshalling strings cannot fail.
		t.credentials[keyClouds] = raw
	}
}

// chooseIdentityService sets the URL of the identity service. An author of old Machines must not choose the host that
// receives a password of a Secret. So the URL of the Secret takes precedence, and a password of a Secret needs it.
func (t *translation) chooseIdentityService(a *cloudAuth, fromSecret string, inDescription func(string) string) {
	described := inDescription("identityEndpoint")
	if fromSecret != "" && described != "" && described != fromSecret {
		t.old.Add(provider.Finding{Level: provider.FindingNote, Code: "IdentityService", Path: t.old.Path("identityEndpoint"),
			Message: "the Secret with the credentials names another identity service, which is used instead"})
	}
	isSecret := a.Password != inDescription("password") || a.ApplicationCredentialSecret != inDescription(keySecret)
	if fromSecret != "" || isSecret {
		a.AuthURL = fromSecret
	}
}

// reportMissing reports the keys without which the provider cannot sign in.
func (t *translation) reportMissing(a *cloudAuth) {
	var missing []string
	require := func(name string, alternatives ...string) {
		if cmp.Or(alternatives...) == "" {
			missing = append(missing, name)
		}
	}
	require("authURL or OS_AUTH_URL", a.AuthURL)
	if cmp.Or(a.ApplicationCredentialID, a.ApplicationCredentialName) != "" {
		require("applicationCredentialSecret or OS_APPLICATION_CREDENTIAL_SECRET", a.ApplicationCredentialSecret)
	} else {
		require("username or OS_USER_NAME", a.Username, a.UserID)
		require("password or OS_PASSWORD", a.Password)
		require("tenantName or OS_PROJECT_NAME", a.ProjectName, a.ProjectID)
		require("domainName or OS_DOMAIN_NAME", a.DomainName, a.DomainID, a.UserDomainName, a.UserDomainID, a.UserID)
	}
	if len(missing) > 0 && !t.unusableCredentials {
		t.unusableCredentials = true
		t.old.Add(legacy.MissingCredentials(missing...))
	}
}

// reportUnsupported reports settings of connections that this provider does not have, and removes them.
func (t *translation) reportUnsupported(entry *cloudEntry, insecure, clientCertificate bool) {
	if insecure || entry.Verify != nil && !*entry.Verify {
		t.credentialsFinding(provider.FindingLoss, "Insecure", "insecure",
			"this provider always verifies the certificates of OpenStack")
	}
	if clientCertificate || entry.Cert != "" || entry.Key != "" {
		t.credentialsFinding(provider.FindingLoss, "ClientCertificate", "clientCert",
			"this provider does not use client certificates")
	}
	if _, given := t.credentials[keyCA]; !given && entry.CACert != "" {
		t.credentialsFinding(provider.FindingBlocker, provider.FindingRequiredField, keyCA,
			"the clouds.yaml names a file with certificate authorities, which is not in the Secret; put its content into "+
				"the key "+keyCA+" of the Secret in spec.credentialsRef of the Migration")
	}
	entry.Verify, entry.CACert, entry.Cert, entry.Key = nil, "", "", ""
}

func (t *translation) credentialsFinding(level provider.FindingLevel, code, key, message string) {
	t.unusableCredentials = t.unusableCredentials || level == provider.FindingBlocker
	t.old.Add(provider.Finding{Level: level, Code: code, Path: strings.TrimSuffix("credentials."+key, "."),
		Message: message})
}
