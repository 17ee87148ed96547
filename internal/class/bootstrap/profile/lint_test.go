package profile

import (
	"encoding/base64"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	ignitiontypes "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/vincent-petithory/dataurl"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/class/bootstrap"
)

type cloudInit struct {
	PreferFQDN        *bool             `json:"prefer_fqdn_over_hostname"`
	Hostname          string            `json:"hostname"`
	SSHAuthorizedKeys []string          `json:"ssh_authorized_keys"`
	Apt               map[string]string `json:"apt"`
	PackageUpdate     bool              `json:"package_update"`
	Packages          []string          `json:"packages"`
	WriteFiles        []cloudInitFile   `json:"write_files"`
	RunCmd            [][]string        `json:"runcmd"`
}

type cloudInitFile struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Encoding    string `json:"encoding"`
	Append      bool   `json:"append"`
	Content     string `json:"content"`
}

type diskFile struct {
	mode    int64
	content string
}

var values = bootstrap.Values{MachineName: "1e3", MachineNamespace: "null", KubeletVersion: "v1.36.3",
	APIEndpoint: "https://api.example:6443", CABundle: []byte("\xfb\xff\xbf\n" + sampleCA),
	BootstrapToken: "abcdef.0123456789abcdef"}

// readCloudConfig parses a rendered cloud-config strictly.
func readCloudConfig(t testing.TB, data []byte) (cloudInit, map[string]diskFile) {
	t.Helper()
	if !strings.HasPrefix(string(data), "#cloud-config\n") {
		t.Fatalf("the config does not start with #cloud-config: %.60q", data)
	}
	var config cloudInit
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		t.Fatalf("%v in:\n%s", err, data)
	}
	disk := map[string]diskFile{}
	for _, f := range config.WriteFiles {
		mode, err := strconv.ParseInt(f.Permissions, 8, 32)
		if err != nil || disk[f.Path].mode != 0 {
			t.Fatalf("%s is written twice, or its mode %q is invalid", f.Path, f.Permissions)
		}
		content := f.Content
		if f.Encoding == "b64" {
			decoded, err := base64.StdEncoding.DecodeString(content)
			if err != nil {
				t.Fatalf("%s: %v", f.Path, err)
			}
			content = string(decoded)
		}
		disk[f.Path] = diskFile{mode, content}
	}
	return config, disk
}

func readIgnition(t testing.TB, data []byte) (sshKeys []string, disk map[string]diskFile) {
	t.Helper()
	config, report, err := ignitiontypes.Parse(data)
	if err != nil || len(report.Entries) > 0 {
		t.Fatalf("%v\n%s\nin:\n%s", err, report.String(), data)
	}
	disk = map[string]diskFile{}
	for _, f := range config.Storage.Files {
		content, err := dataurl.DecodeString(*f.Contents.Source)
		if err != nil {
			t.Fatalf("%s: %v", f.Path, err)
		}
		disk[f.Path] = diskFile{int64(*f.Mode), string(content.Data)}
	}
	for _, u := range config.Systemd.Units {
		if u.Contents != nil {
			disk["/etc/systemd/system/"+u.Name] = diskFile{0o644, *u.Contents}
		}
		for _, d := range u.Dropins {
			disk["/etc/systemd/system/"+u.Name+".d/"+d.Name] = diskFile{0o644, *d.Contents}
		}
	}
	for _, user := range config.Passwd.Users {
		for _, key := range user.SSHAuthorizedKeys {
			sshKeys = append(sshKeys, string(key))
		}
	}
	return sshKeys, disk
}

func onMachine(t testing.TB, profile string, template []byte) map[string]diskFile {
	t.Helper()
	data, err := bootstrap.Render(template, values)
	if err != nil {
		t.Fatal(err)
	}
	if profile == "flatcar" {
		_, disk := readIgnition(t, data)
		return disk
	}
	_, disk := readCloudConfig(t, data)
	return disk
}

func TestAllProfilesWriteFiles(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			o := allOptions(name)
			disk := onMachine(t, name, render(t, o))
			want := map[string]diskFile{
				"/etc/agent/config": {0o600, "name: 1e3\ntoken: abcdef.0123456789abcdef\n"},
				"/opt/agent/run":    {0o755, string(o.Files[1].Content)},
				proxyPath: {0o600, "HTTP_PROXY=http://user:pa%40ss@proxy.example:3128\nhttp_proxy=http://user:pa%40ss@proxy.example:3128\n" +
					"HTTPS_PROXY=http://proxy.example:3128\nhttps_proxy=http://proxy.example:3128\n" +
					"NO_PROXY=10.0.0.0/8,.svc,::1\nno_proxy=10.0.0.0/8,.svc,::1\n"},
				"/etc/systemd/system/agent.service": {0o644, "[Service]\nExecStart=/opt/agent/run 1e3\n[Install]\nWantedBy=multi-user.target\n"},
			}
			if configuresKubelet(name) {
				want[clientCAPath] = diskFile{0o644, sampleCA}
				want[environmentPath] = diskFile{0o644, "KUBELET_VERSION=v1.36.3\n"}
			}
			if distributions[name].agent == nil { // Agents store the mirrors in another format.
				want["/etc/containerd/certs.d/docker.io/hosts.toml"] = diskFile{0o644, "server = \"https://registry-1.docker.io\"\n\n" +
					"[host.\"https://mirror.example\"]\ncapabilities = [\"pull\", \"resolve\"]\n\n" +
					"[host.\"https://second.example/v2\"]\ncapabilities = [\"pull\", \"resolve\"]\n"}
			}
			for _, f := range o.Files[2:] {
				want[f.Path] = diskFile{0o644, string(f.Content)}
			}
			for path, file := range want {
				if disk[path] != file {
					t.Errorf("%s is %+v, want %+v", path, disk[path], file)
				}
			}
			if !configuresKubelet(name) {
				return // TestKubeadmProfileJoins and TestAgentProfilesJoin check the other files.
			}
			minimal := onMachine(t, name, render(t, minimalOptions(name)))
			if got := minimal[clientCAPath].content; got != string(values.CABundle) {
				t.Errorf("without --client-ca %s is %q", clientCAPath, got)
			}
			kubeconfig := minimal[kubeconfigPath]
			if kubeconfig.mode != 0o600 || !strings.Contains(kubeconfig.content, values.BootstrapToken) {
				t.Errorf("%s is %+v", kubeconfigPath, kubeconfig)
			}
		})
	}
}

func TestHostNameAndSSHKeys(t *testing.T) {
	for _, name := range Names() {
		data, err := bootstrap.Render(render(t, allOptions(name)), values)
		if err != nil {
			t.Fatal(err)
		}
		host, keys := "", []string(nil)
		if name == "flatcar" {
			var disk map[string]diskFile
			keys, disk = readIgnition(t, data)
			host = strings.TrimSpace(disk["/etc/hostname"].content)
		} else {
			config, _ := readCloudConfig(t, data)
			host, keys = config.Hostname, config.SSHAuthorizedKeys
			if config.PreferFQDN == nil || *config.PreferFQDN {
				t.Errorf("%s: cloud-init may use a host name with a domain", name)
			}
		}
		if host != "1e3" || !slices.Equal(keys, []string{testKey}) {
			t.Errorf("%s: host %q, keys %q", name, host, keys)
		}
	}
}

// CLOUD_INIT_SCHEMA is the path of cloud-init's published schema, which hack/cloudinit.sh downloads.
func TestCloudConfigsMatchSchemaOfCloudInit(t *testing.T) {
	path := os.Getenv("CLOUD_INIT_SCHEMA")
	if path == "" {
		t.Skip("CLOUD_INIT_SCHEMA is not set: `make test` sets it on systems with apt")
	}
	schema, err := jsonschema.NewCompiler().Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(data []byte) error {
		var config any
		if err := yaml.Unmarshal(data, &config); err != nil {
			return err
		}
		return schema.Validate(config)
	}
	if validate([]byte("#cloud-config\nwrite_files: [{path: 7}]\n")) == nil {
		t.Fatal("the schema allows a path that is not a string, so this test would prove nothing")
	}
	for _, name := range slices.DeleteFunc(Names(), func(name string) bool { return name == "flatcar" }) {
		for kind, o := range map[string]Options{"minimal": minimalOptions(name), "all": allOptions(name)} {
			data, err := bootstrap.Render(render(t, o), values)
			if err == nil {
				err = validate(data)
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
		}
	}
}

func TestNamesContainsAllProfiles(t *testing.T) {
	if got, want := slices.Sorted(slices.Values(Names())), slices.Sorted(maps.Keys(distributions)); !slices.Equal(got, want) {
		t.Errorf("Names() = %v, want %v", got, want)
	}
}
