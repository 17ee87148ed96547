package realnode

import "fmt"

const containerdSocket = "/run/containerd/containerd.sock"

const registryAddress = "127.0.0.1:5000"

// pauseImage is the image of every pod's pause container. hack/node/build.sh sets its tag.
const pauseImage = "registry.test/pause:1"

func registryArgs(layouts []string) []string {
	args := []string{"serve", "--listen=" + registryAddress}
	for _, layout := range layouts {
		args = append(args, "--layout="+layout)
	}
	return args
}

func (h *host) writeContainerdFiles() error {
	return h.write(map[string]string{
		"containerd.toml":             fmt.Sprintf(containerdConfig, h.dir, containerdSocket, pauseImage),
		"certs.d/_default/hosts.toml": fmt.Sprintf("server = %q\n", "http://"+registryAddress),
		"cni/bridge.conflist":         fmt.Sprintf(bridge, h.dir),
	})
}

const containerdConfig = `version = 3
root = "%[1]s/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "%[2]s"

[plugins.'io.containerd.cri.v1.images']
use_local_image_pull = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "%[3]s"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "%[1]s/certs.d"

[plugins.'io.containerd.cri.v1.runtime']
# Some hosts forbid even root to lower the OOM score of a process.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
conf_dir = "%[1]s/cni"
`

// bridge is a format string for the CNI configuration, with the folder of the run. The bridge connects pods to the host
// and to each other.
const bridge = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "pods0",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "%s/addresses",
        "ranges": [[{"subnet": "` + podRange + `"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

const podRange = "10.244.0.0/16"
