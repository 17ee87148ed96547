package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// CloudsYAML returns the path of clouds.yaml. The file contains the clouds machinist (the user of the tests),
// machinist-key (the same user with an application credential) and admin.
func (c *Cloud) CloudsYAML() string { return c.settings.configPath("clouds.yaml") }

// Environment returns the environment variables that select a cloud of CloudsYAML.
func (c *Cloud) Environment(cloud string) []string {
	return []string{
		"OS_CLIENT_CONFIG_FILE=" + c.CloudsYAML(),
		"OS_CLOUD=" + cloud,
		"OPENSTACK_METADATA_URL=" + c.MetadataURL(),
		"OPENSTACK_METADATA_SECRET=" + c.MetadataSecret(),
		"OPENSTACK_COMMAND=" + c.settings.clientPath(),
	}
}

// ClientPath returns the path of the openstack command. ClientPath works in any folder.
func (c *Cloud) ClientPath() string { return c.settings.clientPath() }

// Client runs the openstack command as the user of the tests and returns the output. The option --os-cloud selects
// another cloud.
func (c *Cloud) Client(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.settings.clientPath(), args...)
	cmd.Env = c.settings.environment(c.Environment("machinist")...)
	cmd.Dir = c.settings.Dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("openstack %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// ClientJSON runs a command with JSON output, and decodes the output.
func (c *Cloud) ClientJSON(ctx context.Context, into any, args ...string) error {
	output, err := c.Client(ctx, append(args, "--format=json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(output, into); err != nil {
		return fmt.Errorf("openstack %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
