package driver

import (
	"bytes"

	"machinist.dev/machinist/pkg/provider"
)

// oldKeys returns the old systems' names for a key of this provider, the newest first.
func oldKeys(key string) []string {
	return map[string][]string{
		keyTenant:       {"tenantID", "azureTenantId", "azure_tenant_id"},
		keySubscription: {"subscriptionID", "azureSubscriptionId", "azure_subscription_id"},
		keyClient:       {"clientID", "azureClientId", "azure_client_id"},
		keySecret:       {"clientSecret", "azureClientSecret", "azure_client_secret"},
	}[key]
}

// readCredentials reads the credentials from the description and the old system's Secret. Without a client secret, the
// old system used a workload identity, which a flag of the provider must allow.
func (t *translation) readCredentials(secret provider.Credentials) {
	t.credentials = map[string][]byte{}
	inSpec := t.source != provider.SourceGardener && t.source != provider.SourceOpenShift
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
		switch {
		case len(t.credentials[key]) > 0:
		case key == keySecret:
			t.old.Add(provider.Finding{Level: provider.FindingNote, Code: "WorkloadIdentity", Path: "credentials." + key,
				Message: "the application has no secret, so the provider signs in with its own workload identity, which " +
					"the flag --azure-workload-identity-for must allow"})
		default:
			t.old.Add(provider.Finding{Level: provider.FindingBlocker, Code: provider.FindingRequiredField,
				Path: "credentials." + key, Message: "the credentials of the old system do not have this key"})
		}
	}
}
