package openstack

import "context"

// RevokeTokens disables the user of the tests for a moment, so that Keystone revokes the user's tokens. Passwords and
// application credentials stay valid.
func (c *Cloud) RevokeTokens(ctx context.Context) error {
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	user := c.settings.URL.Keystone + "/users/" + c.seeded.UserID
	for _, enabled := range []bool{false, true} {
		body := map[string]any{"user": map[string]any{"enabled": enabled}}
		if err := admin.do(ctx, "PATCH", user, body, nil); err != nil {
			return err
		}
	}
	return nil
}
