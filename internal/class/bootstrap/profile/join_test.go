package profile

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/class/bootstrap"
)

func TestKubeadmProfileJoins(t *testing.T) {
	for _, o := range []Options{minimalOptions("kubeadm"), allOptions("kubeadm")} {
		config, disk := rendered(t, o)
		if disk[joinConfigPath].mode != 0o600 {
			t.Errorf("the mode of %s is %o", joinConfigPath, disk[joinConfigPath].mode)
		}
		var join struct {
			Kind      string
			Discovery struct{ BootstrapToken struct{ Token string } }
		}
		if err := json.Unmarshal([]byte(disk[joinConfigPath].content), &join); err != nil {
			t.Fatal(err)
		}
		if join.Kind != "JoinConfiguration" || join.Discovery.BootstrapToken.Token != values.BootstrapToken {
			t.Errorf("the configuration is %+v", join)
		}
		for _, path := range []string{kubeconfigPath, kubeletConfigPath, clientCAPath, environmentPath, "/etc/systemd/system/kubelet.service"} {
			if _, written := disk[path]; written {
				t.Errorf("the profile writes %s, which kubeadm or the image writes", path)
			}
		}
		// containerd must restart with the proxies before kubeadm join runs.
		last := config.RunCmd[len(config.RunCmd)-2:]
		if !reflect.DeepEqual(last, [][]string{{"systemctl", "start", "containerd.service"},
			{"kubeadm", "join", "--config", joinConfigPath}}) {
			t.Errorf("the last commands are %q", last)
		}
	}
}

func TestAgentProfilesJoin(t *testing.T) {
	for name, server := range map[string]string{"k3s": values.APIEndpoint, "rke2": "https://rke2.example:9345"} {
		config, disk := rendered(t, minimalOptions(name))
		path := "/etc/rancher/" + name + "/config.yaml"
		var got map[string]any
		if err := yaml.UnmarshalStrict([]byte(disk[path].content), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"server": server, "token": values.BootstrapToken,
			"node-taint": []any{"machinist.dev/uninitialized:NoSchedule"}}
		if !reflect.DeepEqual(got, want) || disk[path].mode != 0o600 || len(disk) != 1 {
			t.Errorf("%s: the files are %+v, want only %s with %v", name, disk, path, want)
		}
		if !slices.ContainsFunc(config.RunCmd, func(command []string) bool {
			return slices.Equal(command, []string{"systemctl", "enable", name + "-agent.service"})
		}) {
			t.Errorf("%s: the commands are %q", name, config.RunCmd)
		}
		_, disk = rendered(t, allOptions(name))
		var registries struct {
			Mirrors map[string]struct{ Endpoint []string }
		}
		if err := yaml.UnmarshalStrict([]byte(disk["/etc/rancher/"+name+"/registries.yaml"].content), &registries); err != nil {
			t.Fatal(err)
		}
		if len(registries.Mirrors) != 2 || !slices.Equal(registries.Mirrors["docker.io"].Endpoint,
			[]string{"https://mirror.example", "https://second.example/v2"}) {
			t.Errorf("%s: the mirrors are %v", name, registries.Mirrors)
		}
		if _, written := disk["/etc/systemd/system/"+name+"-agent.service.d/90-machinist-proxy.conf"]; !written {
			t.Errorf("%s: the agent has no proxies", name)
		}
	}
}

func rendered(t *testing.T, o Options) (cloudInit, map[string]diskFile) {
	t.Helper()
	data, err := bootstrap.Render(render(t, o), values)
	if err != nil {
		t.Fatal(err)
	}
	return readCloudConfig(t, data)
}
