package openstack

import (
	"context"
	"fmt"
)

type entry struct{ name, kind, url string }

func (s settings) catalog() []entry {
	return []entry{
		{"keystone", "identity", s.URL.Keystone},
		{"placement", "placement", s.URL.Placement},
		{"glance", "image", s.URL.Glance},
		{"neutron", "network", s.URL.Neutron},
		{"nova", "compute", s.URL.Nova},
		{"cinderv3", "volumev3", s.URL.Cinder},
	}
}

// createCatalog creates the services in keystone, a user for the services, and the user and project of the tests.
func (c *Cloud) createCatalog(ctx context.Context) error {
	s := c.settings
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	create := func(path, kind string, fields map[string]any) (string, error) {
		var answer map[string]struct{ ID string }
		err := admin.do(ctx, "POST", s.URL.Keystone+path, map[string]any{kind: fields}, &answer)
		return answer[kind].ID, err
	}
	for _, entry := range s.catalog()[1:] { // The bootstrap created the entry of keystone.
		id, err := create("/services", "service", map[string]any{"name": entry.name, "type": entry.kind})
		if err != nil {
			return err
		}
		for _, face := range []string{"public", "internal", "admin"} {
			_, err := create("/endpoints", "endpoint", map[string]any{
				"service_id": id, "interface": face, "url": entry.url, "region_id": s.Region,
			})
			if err != nil {
				return err
			}
		}
	}
	if _, err := create("/roles", "role", map[string]any{"name": "service"}); err != nil {
		return err
	}
	var list struct{ Roles []struct{ ID, Name string } }
	if err := admin.do(ctx, "GET", s.URL.Keystone+"/roles", nil, &list); err != nil {
		return err
	}
	roles := map[string]string{}
	for _, role := range list.Roles {
		roles[role.Name] = role.ID
	}
	for _, user := range []struct {
		name, password, project string
		roles                   []string
	}{
		{"service", s.ServicePassword, "service", []string{"admin", "service"}},
		{s.User, s.UserPassword, s.Project, []string{"member"}},
	} {
		project, err := create("/projects", "project", map[string]any{"name": user.project, "domain_id": "default"})
		if err != nil {
			return err
		}
		id, err := create("/users", "user", map[string]any{
			"name": user.name, "password": user.password, "domain_id": "default",
		})
		if err != nil {
			return err
		}
		for _, role := range user.roles {
			path := fmt.Sprintf("/projects/%s/users/%s/roles/%s", project, id, roles[role])
			if err := admin.do(ctx, "PUT", s.URL.Keystone+path, nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cloud) admin(ctx context.Context) (*session, error) {
	return c.client.login(ctx, c.settings.URL.Keystone, "admin", c.settings.AdminPassword, "admin")
}

func (c *Cloud) member(ctx context.Context) (*session, error) {
	s := c.settings
	return c.client.login(ctx, s.URL.Keystone, s.User, s.UserPassword, s.Project)
}
