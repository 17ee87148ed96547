package driver

import (
	"bytes"
	"slices"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
)

// oldKeys returns the old systems' names for a key of this provider, the newest first. The last name is the
// environment variable that the old controllers read.
func oldKeys(key string) []string {
	return map[string][]string{
		keyTenant:       {"tenantID", "azureTenantId", "azure_tenant_id", "AZURE_TENANT_ID"},
		keySubscription: {"subscriptionID", "azureSubscriptionId", "azure_subscription_id", "AZURE_SUBSCRIPTION_ID"},
		keyClient:       {"clientID", "azureClientId", "azure_client_id", "AZURE_CLIENT_ID"},
		keySecret:       {"clientSecret", "azureClientSecret", "azure_client_secret", "AZURE_CLIENT_SECRET"},
	}[key]
}

// readCredentials reads the credentials from the description and the old system's Secret. Without a client secret,
// the old system used a workload identity, which a flag of the provider must allow.
func (t *translation) readCredentials(secret provider.Credentials) {
	t.credentials = map[string][]byte{}
	var missing []string
	inSpec := !slices.Contains([]string{provider.SourceGardener, provider.SourceOpenShift, provider.SourceClusterAPI},
		t.source)
	if t.source == provider.SourceClusterAPI {
		identity := t.old.Object("identity")
		for key, text := range map[string]string{keyTenant: identity.String("tenantID"),
			keyClient: identity.String("clientID"), keySubscription: t.old.Object("cluster").String("subscriptionID")} {
			if text != "" {
				t.credentials[key] = []byte(text)
			}
		}
	}
	for _, key := range []string{keyTenant, keySubscription, keyClient, keySecret} {
		if inSpec {
			if text := t.old.String(key); text != "" {
				t.credentials[key] = []byte(text)
			}
		}
		for _, name := range oldKeys(key) {
			value, _ := secret.Get(name)
			if text := bytes.TrimSpace(value.Reveal()); len(t.credentials[key]) == 0 && len(text) > 0 {
				t.credentials[key] = text
			}
		}
		if len(t.credentials[key]) == 0 {
			missing = append(missing, key+" or "+oldKeys(key)[len(oldKeys(key))-1])
		}
	}
	switch {
	case len(missing) == 0:
	case len(missing) == 1 && len(t.credentials[keySecret]) == 0:
		t.old.Add(provider.Finding{Level: provider.FindingNote, Code: "WorkloadIdentity", Path: "credentials." + keySecret,
			Message: "the application has no secret, so the provider signs in with its own workload identity, which " +
				"the flag --azure-workload-identity-for must allow"})
	default:
		t.old.Add(legacy.MissingCredentials(missing...))
	}
}
