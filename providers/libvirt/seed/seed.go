package seed

import "encoding/json"

// Data is the input of cloud-init.
type Data struct {
	// InstanceID identifies the instance. After a change, cloud-init runs again.
	InstanceID string
	// HostName is the host name of the guest.
	HostName string
	// UserData is passed to cloud-init unchanged. UserData contains secrets.
	UserData []byte
	// NetworkConfig is cloud-init's network-config. Default: none.
	NetworkConfig string
}

// Image returns the content of the disk. The same data always gives the same bytes.
func Image(d Data) []byte {
	// cloud-init expects YAML, and JSON is valid YAML.
	meta, err := json.Marshal(map[string]string{"instance-id": d.InstanceID, "local-hostname": d.HostName})
	if err != nil {
		return nil // Marshalling strings cannot fail.
	}
	files := []file{{"meta-data", append(meta, '\n')}, {"user-data", d.UserData}}
	if d.NetworkConfig != "" {
		files = append(files, file{"network-config", []byte(d.NetworkConfig)})
	}
	return image(files)
}
