package openstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"machinist.dev/machinist/devel/child"
)

// startFirst creates and seeds the cloud, and creates the snapshot for later starts.
func (c *Cloud) startFirst(ctx context.Context, snapshot string) error {
	c.logf("there is no snapshot yet: creating the databases")
	if err := c.settings.writeKeys(); err != nil {
		return err
	}
	if err := c.createDatabases(ctx); err != nil {
		return err
	}
	if err := c.startServices(ctx); err != nil {
		return err
	}
	if err := c.AwaitReady(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := c.seed(ctx); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	c.logf("seeded after %s", since(begun))
	if err := c.save(ctx, snapshot); err != nil {
		return fmt.Errorf("create a snapshot: %w", err)
	}
	return c.AwaitReady(ctx)
}

func (c *Cloud) createDatabases(ctx context.Context) error {
	s := c.settings
	if err := os.WriteFile(s.configPath("mariadb.sql"), nil, 0o600); err != nil {
		return err
	}
	if err := c.run(ctx, &child.Process{
		Name: "mariadb-install-db", Path: "/bin/sh", Dir: s.Dir, Env: s.environment(),
		Args: append(append([]string{s.Root + "/usr/bin/mariadb-install-db"}, s.mariaDBArgs()...),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"),
	}); err != nil {
		return err
	}
	if err := c.StartService(ctx, MariaDB); err != nil {
		return err
	}
	if err := c.sql(ctx, "create-databases", createDatabasesSQL); err != nil {
		return err
	}
	config := func(name string) string { return "--config-file=" + s.configPath(name) }
	run := func(name, program string, args ...string) func(context.Context) error {
		return func(ctx context.Context) error { return c.run(ctx, s.launch(name, program, args...)) }
	}
	return parallel(ctx,
		func(ctx context.Context) error { return c.StartService(ctx, RabbitMQ) },
		inOrder(
			run("keystone-manage-db", "keystone-manage", config("keystone.conf"), "db_sync"),
			run("keystone-manage-bootstrap", "keystone-manage", config("keystone.conf"), "bootstrap",
				"--bootstrap-password="+s.AdminPassword, "--bootstrap-region-id="+s.Region,
				"--bootstrap-public-url="+s.URL.Keystone, "--bootstrap-internal-url="+s.URL.Keystone,
				"--bootstrap-admin-url="+s.URL.Keystone),
			func(ctx context.Context) error { return c.StartService(ctx, Keystone) },
			c.createCatalog,
		),
		inOrder(
			run("nova-manage-api-db", "nova-manage", config("nova.conf"), config("nova-database.conf"),
				"api_db", "sync"),
			func(ctx context.Context) error { return c.sql(ctx, "map-cells", mapCells) },
			run("nova-manage-db", "nova-manage", config("nova.conf"), config("nova-database.conf"),
				"db", "sync"),
		),
		inOrder(
			run("neutron-db-manage", "neutron-db-manage", config("neutron.conf"), "upgrade", "heads"),
			run("placement-manage", "placement-manage", config("placement.conf"), "db", "sync"),
		),
		inOrder(
			run("cinder-manage", "cinder-manage", config("cinder.conf"), "db", "sync"),
			run("glance-manage", "glance-manage", config("glance.conf"), "db_sync"),
		),
	)
}

func inOrder(functions ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, function := range functions {
			if err := function(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

const createDatabasesSQL = `CREATE DATABASE keystone;
CREATE DATABASE placement;
CREATE DATABASE glance;
CREATE DATABASE neutron;
CREATE DATABASE nova_api;
CREATE DATABASE nova;
CREATE DATABASE nova_cell0;
CREATE DATABASE cinder;
`

// mapCells creates the cells of nova: cell0 for servers without a host, and cell1 for all hosts. Nova reads the URL of
// the message queue from its configuration file, because each cloud uses another port.
const mapCells = `INSERT INTO nova_api.cell_mappings
(created_at, uuid, name, transport_url, database_connection, disabled) VALUES
(NOW(), '00000000-0000-0000-0000-000000000000', 'cell0', 'none:///',
	'mysql+pymysql://root@localhost/nova_cell0?unix_socket=` + mariaDBSocket + `&charset=utf8', 0),
(NOW(), 'f0000000-0000-4000-8000-000000000001', 'cell1', '{scheme}://{username}:{password}@{hostname}:{port}/',
	'mysql+pymysql://root@localhost/nova?unix_socket=` + mariaDBSocket + `&charset=utf8', 0);
`

// updateURLs returns the statements that adapt the ports and folders of a snapshot to this cloud.
func (s settings) updateURLs() string {
	statement := ""
	for _, service := range s.catalog() {
		statement += fmt.Sprintf("UPDATE keystone.endpoint e JOIN keystone.service s ON e.service_id = s.id "+
			"SET e.url = '%s' WHERE s.type = '%s';\n", service.url, service.kind)
	}
	return statement + fmt.Sprintf("UPDATE glance.image_locations SET value = CONCAT('file://%s/', image_id);\n",
		filepath.Join(s.Dir, "glance", "images"))
}
