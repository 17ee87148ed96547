package seed

import "encoding/json"

// Data is what a guest's cloud-init reads.
type Data struct {
	// InstanceID is another one for every instance: cloud-init runs anew when it changes.
	InstanceID string
	// HostName is the guest's.
	HostName string
	// UserData is read by cloud-init as it is. It holds secrets.
	UserData []byte
	// NetworkConfig is cloud-init's network-config, as text. Empty: there is none.
	NetworkConfig string
}

// Image returns the disk. Equal data gives equal bytes.
func Image(d Data) []byte {
	// JSON is YAML.
	meta, err := json.Marshal(map[string]string{"instance-id": d.InstanceID, "local-hostname": d.HostName})
	if err != nil {
		return nil // Strings are always JSON.
	}
	files := []file{{"meta-data", append(meta, '\n')}, {"user-data", d.UserData}}
	if d.NetworkConfig != "" {
		files = append(files, file{"network-config", []byte(d.NetworkConfig)})
	}
	return image(files)
}
