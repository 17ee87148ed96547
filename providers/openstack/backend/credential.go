package backend

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"

	"machinist.dev/machinist/internal/install/permissions"
	"machinist.dev/machinist/providers/openstack/driver"
)

// createRestrictedCredential creates an application credential that permits only the calls in permissions.yaml.
func (p *Project) createRestrictedCredential(ctx context.Context,
	user string) (*applicationcredentials.ApplicationCredential, error) {
	required, err := permissions.ForProvider(driver.Name)
	if err != nil {
		return nil, err
	}
	actions, err := required.ActionsFor(permissions.AllFields)
	if err != nil {
		return nil, err
	}
	rules := make([]applicationcredentials.AccessRule, len(actions))
	for i, action := range actions {
		words := strings.Fields(action)
		rules[i] = applicationcredentials.AccessRule{Service: words[0], Method: words[1], Path: words[2]}
	}
	credential, err := applicationcredentials.Create(ctx, p.Identity, user, applicationcredentials.CreateOpts{
		Name: "machinist-" + rand.Text(), AccessRules: rules}).Extract()
	if err != nil {
		return nil, fmt.Errorf("create an application credential with access rules: %w", err)
	}
	return credential, nil
}
