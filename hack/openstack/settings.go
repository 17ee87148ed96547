package openstack

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"

	"machinist.dev/machinist/devel/child"
)

//go:embed config
var configFiles embed.FS

//go:embed python
var pythonFiles embed.FS

// settings contains all values for the configuration files of a cloud.
type settings struct {
	Dir    string // the cloud's folder
	Root   string // the folder with OpenStack's programs
	Region string

	Port ports
	URL  urls

	User, UserPassword, Project    string
	AdminPassword, ServicePassword string
	MetadataSecret                 string
	ApplicationCredential          *Credential
}

type ports struct {
	RabbitMQ, Erlang, PortMapper                                        int
	Keystone, Placement, Glance, Neutron, NovaAPI, NovaMetadata, Cinder int
}

// urls are the URLs in the catalog.
type urls struct {
	Keystone, Placement, Glance, Neutron, Nova, NovaMetadata, Cinder string
}

func newSettings(dir, root string) (settings, error) {
	s := settings{
		Dir: dir, Root: root, Region: "RegionOne",
		User: "machinist", UserPassword: "machinist", Project: "machinist",
		AdminPassword: "admin", ServicePassword: "service", MetadataSecret: "metadata-secret",
	}
	for _, port := range []*int{
		&s.Port.RabbitMQ, &s.Port.Erlang, &s.Port.PortMapper, &s.Port.Keystone, &s.Port.Placement, &s.Port.Glance,
		&s.Port.Neutron, &s.Port.NovaAPI, &s.Port.NovaMetadata, &s.Port.Cinder,
	} {
		var err error
		if *port, err = child.FreePort(); err != nil {
			return settings{}, err
		}
	}
	url := func(port int, path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", port, path) }
	s.URL = urls{
		Keystone:     url(s.Port.Keystone, "/v3"),
		Placement:    url(s.Port.Placement, ""),
		Glance:       url(s.Port.Glance, ""),
		Neutron:      url(s.Port.Neutron, ""),
		Nova:         url(s.Port.NovaAPI, "/v2.1"),
		NovaMetadata: url(s.Port.NovaMetadata, ""),
		Cinder:       url(s.Port.Cinder, "/v3/$(project_id)s"),
	}
	return s, nil
}

// mariaDBSocket is relative to the folder of the cloud, which is the working directory of all processes. So the path is
// short enough for a socket, and a snapshot is independent of the folder.
const mariaDBSocket = "mariadb/mariadb.sock"

// Database returns the URL of a database.
func (s settings) Database(name string) string {
	return "mysql+pymysql://root@localhost/" + name + "?unix_socket=" + mariaDBSocket + "&charset=utf8"
}

// MessageQueue returns the URL of RabbitMQ.
func (s settings) MessageQueue() string {
	return fmt.Sprintf("rabbit://guest:guest@127.0.0.1:%d/", s.Port.RabbitMQ)
}

func (s settings) configPath(name string) string { return filepath.Join(s.Dir, "config", name) }

// write writes the configuration files and creates the folders that they name.
func (s settings) write() error {
	for _, dir := range []string{
		"config", "home", "nova/locks", "neutron/locks", "cinder/locks", "cinder/coordination",
		"glance/images", "glance/staging", "glance/tasks", "glance/cache", "glance/locks",
		"keystone/fernet-keys", "keystone/credential-keys", "rabbitmq", "python",
	} {
		if err := os.MkdirAll(filepath.Join(s.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	for _, name := range []string{
		"nova.conf", "nova-database.conf", "keystone.conf", "placement.conf", "glance.conf", "neutron.conf",
		"cinder.conf", "clouds.yaml",
	} {
		if err := s.render(name, name, s); err != nil {
			return err
		}
	}
	for _, compute := range NovaCompute() {
		data := struct {
			settings
			Host     string
			Fillable bool
		}{s, host(compute), compute == NovaCompute3}
		if err := s.render("nova-compute.conf", string(compute)+".conf", data); err != nil {
			return err
		}
	}
	if err := s.writeClient(); err != nil {
		return err
	}
	return s.writePython()
}

func (s settings) render(from, to string, data any) error {
	t, err := template.New("").ParseFS(configFiles, "config/shared.conf", "config/"+from)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Option("missingkey=error").ExecuteTemplate(&b, from, data); err != nil {
		return err
	}
	return os.WriteFile(s.configPath(to), b.Bytes(), 0o600)
}

func (s settings) clientPath() string { return filepath.Join(s.Dir, "openstack") }

// writeClient writes a script that runs the openstack command in any folder.
func (s settings) writeClient() error {
	t, err := template.ParseFS(configFiles, "config/client.sh")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, s); err != nil {
		return err
	}
	return os.WriteFile(s.clientPath(), b.Bytes(), 0o700)
}

func (s settings) writePython() error {
	return fs.WalkDir(pythonFiles, "python", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(s.Dir, filepath.FromSlash(path))
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		content, err := pythonFiles.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o600)
	})
}

// writeKeys creates keystone's keys for tokens and credentials.
func (s settings) writeKeys() error {
	for _, dir := range []string{"fernet-keys", "credential-keys"} {
		for _, name := range []string{"0", "1"} {
			key := make([]byte, 32)
			if _, err := rand.Read(key); err != nil {
				return err
			}
			text := base64.URLEncoding.EncodeToString(key)
			if err := os.WriteFile(filepath.Join(s.Dir, "keystone", dir, name), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
